"""The user-facing package: the command line, a small Kafka client for it, and the demo.

This is the top floor of the house. It joins `cluster` (how a node runs) and `history` (what happened), which
do not know each other; no other package imports it.
"""
