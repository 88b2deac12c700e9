"""Brings tables up to date with an input: once (`run`) or continuously (`stream`)."""
