"""Committed offsets: commits, fetches and expiry.

commits    OffsetCommit
fetching   OffsetFetch
retention  expiry of offsets and groups
"""
