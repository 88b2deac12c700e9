"""The asyncio backend.

consumer   `Consumer`, the asyncio flavour
leases     `lease()`: partitions to work on, with their fencing tokens
transport  connections by number over asyncio, with TLS
loop       drives the background side: one pass whenever there is something to do
"""
