"""One HTML file of the tables: findings first, then charts.

figures    what is shown, counted by Spark: every answer has a bounded number of rows
charts     pictures of it by matplotlib, as SVG in the page's own colours
page       the file: `report_page`
"""
