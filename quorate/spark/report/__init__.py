"""A single HTML report of the tables: findings first, then by period and by group.

scale       the periods of the page: seconds to months, by the span of the log
aggregates  aggregates that several figures share, collected in one Spark job
figures     the figures of the whole, in a bounded number of rows
groups      the figures of the groups that matter
charts      matplotlib charts as SVG in the page's own colours
parts       tables, links and names
grouppart   the part of the page about one group
page        the file: `report_page`
"""
