"""Offsets: commits, transactions, fetches and expiry.

commits        OffsetCommit
transactional  TxnOffsetCommit: offsets that are pending until their transaction ends
resolving      the end of a transaction: its offsets count, or are dropped
fetching       OffsetFetch
lag            offsets of a group and its lag, as JSON
retention      expiry of offsets and groups
"""
