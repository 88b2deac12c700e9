"""Fetching: from the log of a partition's leader to the application's poll.

sender     asks the leaders for records of the partitions that may be fetched
buffer     the count of bytes that are fetched and not handed out yet, and their bound
extent     the reach of fetched records
handler    on the application side: hands out records, keeps the positions behind them
completed  the records of one partition from one response, batch by batch
records    the records of one batch
codecs     decompression within a bound
"""
