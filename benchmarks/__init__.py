"""Benchmarks: one module beside each thing whose speed is promised; `make bench` runs them all."""
