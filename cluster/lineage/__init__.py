"""What a node does for the older group protocols of `lineage`; nothing here is imported if none is served.

rewrite_settings  the node's settings as `lineage.rewrite` has them
strategy_jobs     users' strategies of seed 000, as child processes
"""
