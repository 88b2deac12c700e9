"""Fetching: from the log of a partition's leader to the application's poll.

completed  the records of one partition from one response, batch by batch
records    the records of one batch
codecs     decompression within a bound
"""
