"""AddOffsetsToTxn: a producer adds a group to its transaction, before it commits offsets of that group in it.

The request goes to the coordinator of the transaction, TxnOffsetCommit to the coordinator of the group.
"""

from wire.schema import Message, int16, int32, int64, message, string


@message(versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Message):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


@message(versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
