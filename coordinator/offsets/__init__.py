"""Committed offsets: commits, fetches and expiry."""
