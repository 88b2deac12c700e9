"""Committed offsets: commits, fetches, and which offsets are over."""
