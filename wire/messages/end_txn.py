"""EndTxn: a producer commits or aborts its transaction.

Version 5, which answers with the epoch of the next transaction (KIP-890), belongs to transaction version 2
and is not served.
"""

from wire.schema import Message, boolean, int16, int32, int64, message, string


@message(versions="0-4", flexible="3+")
class EndTxnRequest(Message):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


@message(versions="0-4", flexible="3+")
class EndTxnResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
