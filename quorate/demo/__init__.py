"""The demo: one node, real consumers, a kill -9, and the proof from the files alone.

`tour` tells the story, `fleet` runs the consumers, `consumer` is what each of them executes, `claims` is
what must hold, `display` is what is seen.
"""
