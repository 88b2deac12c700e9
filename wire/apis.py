"""The Kafka APIs that a node can serve, their versions, and the modules of their messages.

`API_VERSIONS` is the single list: the APIs and versions in it, and no others, can be decoded, encoded, and
refused in the right shape. A node serves and advertises those that `served_apis` has for its features. One
exception: the protocol's extensions (`is_private`) are served to all clients, but only advertised to those
that know them. Message modules are imported when an API is first used, so that a process that uses three APIs
does not import all of them at startup.
"""

from enum import IntEnum
from functools import cache
from importlib import import_module
from types import ModuleType

from wire.schema import Message


class ApiKey(IntEnum):
    """Kafka's API keys, including APIs that are not served, so that a refusal can name them."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    # Private extensions; see docs/protocol-extensions.md.
    EXTENDED_CONSUMER_GROUP_HEARTBEAT = 20_068
    CONSUMER_GROUP_PREPARE_ASSIGNMENT = 20_101
    CONSUMER_GROUP_INSTALL_ASSIGNMENT = 20_102


# First and last version. The lower bounds are those of Kafka 4 (KIP-896); the upper bounds are the newest
# versions of which every field is supported here.
API_VERSIONS: dict[ApiKey, tuple[int, int]] = {
    # Always served, if only to be refused: librdkafka considers Fetch 4 unusable on a node without Produce 3.
    ApiKey.PRODUCE: (3, 13),
    ApiKey.FETCH: (4, 17),
    ApiKey.LIST_OFFSETS: (1, 10),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),  # 4 and 5 are for brokers
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 4),  # 5 is for transaction version 2 (KIP-890), like TxnOffsetCommit 5
    ApiKey.TXN_OFFSET_COMMIT: (0, 4),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT: (0, 0),
    ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT: (0, 0),
}

CLIENT_APIS = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""Only for clients of other servers: no node serves them."""

CLASSIC_APIS = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT})
"""Only served with the classic protocol. LeaveGroup is always served, for operators."""

LOG_APIS = frozenset({ApiKey.INIT_PRODUCER_ID, ApiKey.DELETE_RECORDS})
"""Only served with a log of messages. Produce, Fetch and ListOffsets are always served."""

TRANSACTION_APIS = frozenset(
    {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    }
)
"""Only served with transactions."""


def served_apis(*, classic: bool = False, log: bool = False, transactions: bool = False) -> frozenset[ApiKey]:
    """The APIs that a node with these features serves."""
    apis = frozenset(API_VERSIONS) - CLIENT_APIS - CLASSIC_APIS - LOG_APIS - TRANSACTION_APIS
    if classic:
        apis |= CLASSIC_APIS
    if log:
        apis |= LOG_APIS
    if transactions:
        apis |= TRANSACTION_APIS
    return apis


PRIVATE_KEYS_FROM = 20_000
"""First key of private APIs: far above what Kafka has used in fifteen years, and within an int16."""


def is_private(api_key: int) -> bool:
    """Whether the API is a private extension, which stock clients do not know and are not told about."""
    return api_key >= PRIVATE_KEYS_FROM


HEARTBEATS = frozenset(
    {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, ApiKey.HEARTBEAT}
)
"""The requests that keep members of groups alive, those of the classic protocol too."""


def message_module(api_key: ApiKey) -> ModuleType:
    """The module of an API's messages, imported on first use.

    Raises KeyError if the API is not in API_VERSIONS."""
    if api_key not in API_VERSIONS:
        raise KeyError(f"{api_name(api_key)} has no messages here")
    return import_module(f"wire.messages.{api_key.name.lower()}")


@cache
def message_classes(api_key: ApiKey) -> tuple[type[Message], type[Message]]:
    """The request and response class of an API. Raises KeyError if it is not in API_VERSIONS."""
    module = message_module(api_key)
    camel = "".join(word.capitalize() for word in api_key.name.split("_"))
    request: type[Message] = getattr(module, f"{camel}Request")
    response: type[Message] = getattr(module, f"{camel}Response")
    return request, response


def api_name(api_key: int) -> str:
    """Kafka's name and number of an API key, as errors show it; an unknown key by its number alone."""
    try:
        return f"{ApiKey(api_key).name} ({api_key})"
    except ValueError:
        return f"API key {api_key}"


def api_title(api_key: int) -> str:
    """Kafka's name of an API as its documents write it, such as OffsetCommit."""
    try:
        return ApiKey(api_key).name.title().replace("_", "")
    except ValueError:
        return f"API {api_key}"
