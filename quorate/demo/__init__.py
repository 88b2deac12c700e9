"""The demo: three nodes, real consumers, the leader killed, and the proof from the files alone.

`tour` is the script, played on the `scene`; `fleet` runs the consumers, each of which executes `consumer`;
`claims` must hold, `proof` checks them against the files, and `display` shows the result.

tour      the script
scene     what all chapters share: cluster, consumers, display, claims
fleet     runs the consumers
consumer  one consumer: a confluent-kafka program
watch     observes the cluster meanwhile
claims    what must hold
evidence  what the consumers wrote about themselves
proof     the files of the stopped nodes
display   the output
"""
