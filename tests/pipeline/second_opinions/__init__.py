"""Facts that the tables have, derived by Spark in another way, so that tests can compare the two.

epochs    every epoch of every group, by counting members
owners    who owned a partition when, from each member's own records
"""
