"""The demo: three nodes, real consumers, the leader killed, and the proof from the files alone.

`tour` tells the story on the `scene`, `fleet` runs the consumers, `consumer` is what each of them executes,
`claims` is what must hold, `proof` what the files say, `display` what is seen.
"""
