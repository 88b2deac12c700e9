"""Nodes started from outside, for `quorate up` and for tests: their processes, and control over them."""
