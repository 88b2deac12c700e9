"""ApiVersions: the APIs and versions that a node serves. The first request on most connections.

Clients may send it in a version that the node does not know. The response then has a version 0 body with
UNSUPPORTED_VERSION. The response header always has version 0 (KIP-511), so that any client can read it.
"""

from wire.apis import API_VERSIONS, ApiKey
from wire.schema import Message, array_of, boolean, int16, int32, int64, message, nested, string


@message(versions="0-4", flexible="3+")
class ApiVersionsRequest(Message):
    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


@nested
class ApiVersion(Message):
    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


@nested
class SupportedFeatureKey(Message):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@nested
class FinalizedFeatureKey(Message):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@message(versions="0-4", flexible="3+")
class ApiVersionsResponse(Message):
    error_code: int = int16("0+")
    api_keys: list[ApiVersion] = array_of(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array_of(SupportedFeatureKey, "3+", tag=0, tagged="3+")
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, tagged="3+")
    finalized_features: list[FinalizedFeatureKey] = array_of(FinalizedFeatureKey, "3+", tag=2, tagged="3+")
    zk_migration_ready: bool = boolean("3+", tag=3, tagged="3+")


def refusal(
    request: ApiVersionsRequest | None, api_version: int, code: int, message: str | None
) -> ApiVersionsResponse:
    """The error response: the code, and the served versions of this API for the client's retry (KIP-511)."""
    first, last = API_VERSIONS[ApiKey.API_VERSIONS]
    own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=first, max_version=last)
    return ApiVersionsResponse(error_code=code, api_keys=[own])
