"""Nodes started from outside, for `quorate up` and for tests: their processes, and what is done to them."""
