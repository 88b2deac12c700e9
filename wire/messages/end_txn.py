"""EndTxn: a producer commits or aborts its transaction.

Version 5 answers with the id and epoch of the next transaction (KIP-890). Clients use it only if the feature
`transaction.version` is finalized at level 2.
"""

from wire.schema import Message, boolean, int16, int32, int64, message, string


@message(versions="0-5", flexible="3+")
class EndTxnRequest(Message):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


@message(versions="0-5", flexible="3+")
class EndTxnResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
