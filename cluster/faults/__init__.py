"""Faults on demand: what an operator asked a node to do wrong, so that a client can be tested against it.

Nothing here knows a connection or a clock: `cluster/kafka/injecting.py` applies what the table finds.

rule   one fault as it was asked for: what it does, and to which requests
table  the faults of a node: bounded, volatile, in order
"""
