"""The Host of a real process.

host_asyncio  the Host: an asyncio loop, one disk thread, real files
accepting     accepts connections within a bound on file descriptors
clock_guard   notices that the loop stood still
jobs          child processes: one msgpack value in, one out, and a deadline
pieces        long requests and answers of children, in pieces
fresh_ids     globally unique ids
"""
