"""Kafka's wire protocol: bytes to typed messages and back, without a socket.

apis          the APIs, their versions, and which of them are served
schema        how a message is declared: a class body is its schema
messages/     one module per API: its requests and responses
protocol      requests and responses with their headers
embedded      subscriptions and assignments of consumers, within the classic group protocol
framing       a stream of bytes as frames
decoding      generates the decoder of each message and version
encoding      generates the encoder, also one that works in slices
source        Python source under construction, for both
refusals      error responses of every API
record_batch  the header of a batch of records, as Produce and Fetch carry them
errors        error codes, and the exceptions of this package
"""
