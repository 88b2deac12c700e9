"""Benchmarks, one module for each part whose speed is promised; `make bench` runs them all."""
