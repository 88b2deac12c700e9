"""The demo: three nodes, real consumers, the leader killed, and the proof from the files alone.

`tour` is the script, played on the `scene`; `fleet` runs the consumers, each of which executes `consumer`;
`claims` must hold, `proof` checks them against the files, and `display` shows the result.
"""
