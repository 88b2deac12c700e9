"""InitProducerId: gives a producer its id and epoch, and fences older ones with the same transactional id.

A null transactional id asks for an id for idempotence alone. From version 3 on, a producer may name the id
and epoch that it has, to get the next epoch (KIP-360). Version 6, for two-phase commit (KIP-939), is unstable
in Kafka 4.3.
"""

from wire.schema import Message, int16, int32, int64, message, string

NO_PRODUCER = -1
"""Producer id, and epoch, of no producer."""


@message(versions="0-5", flexible="2+")
class InitProducerIdRequest(Message):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=NO_PRODUCER)
    producer_epoch: int = int16("3+", default=NO_PRODUCER)


@message(versions="0-5", flexible="2+")
class InitProducerIdResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=NO_PRODUCER)
    producer_epoch: int = int16("0+")


def refusal(
    request: InitProducerIdRequest, api_version: int, code: int, message: str | None
) -> InitProducerIdResponse:
    """The error response: the code, and no producer."""
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER)
