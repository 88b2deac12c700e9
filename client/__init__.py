"""A consumer of Kafka's consumer group protocol (KIP-848), for Apache Kafka 4.0 and later and for Quorate.

core/   what is decided, without I/O: events, request managers, the member's states, fetching
aio/    the asyncio backend, and `Consumer`

sync               `SyncConsumer`, with confluent-kafka's method names
confluent          its messages, partitions and errors
tracing            spans of OpenTelemetry
classic_member     a member of the classic protocol, for comparisons and simulations of a coordinator
background_thread  the background side in a thread of its own
"""
