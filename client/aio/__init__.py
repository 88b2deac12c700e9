"""The asyncio backend.

transport  connections by number over asyncio, with TLS
loop       drives the background side: one pass whenever there is something to do
"""
