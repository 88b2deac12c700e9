"""A single HTML report of the tables: findings first, then charts.

figures  the figures, aggregated by Spark into a bounded number of rows
charts   matplotlib charts as SVG in the page's own colours
page     the file: `report_page`
"""
