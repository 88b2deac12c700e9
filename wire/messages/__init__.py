"""Kafka's messages, one module per API, each imported when the API is first used (`wire.apis`)."""
