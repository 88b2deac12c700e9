"""An operator's requests to a `World`: configs of groups, removal of members and offsets."""

from __future__ import annotations

from typing import Any

from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, GROUP = 2, 4, 32
NONE = ErrorCode.NONE
Change = tuple[str, int, str | None]


def resource(name: str, *changes: Change, kind: int = GROUP) -> AlterConfigsResource:
    configs = [AlterableConfig(name=n, config_operation=op, value=value) for n, op, value in changes]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def alter(world: World, *resources: AlterConfigsResource, validate_only: bool = False) -> list[Any]:
    """Send configs; return the answers. The groups concerned are notified as a node notifies them."""
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    answer = world.admin(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    world.shard.on_configs_changed(world.ctx(), [asked.resource_name for asked in resources])
    return list(answer.responses)


def set_config(world: World, name: str, value: object, group_id: str = "g") -> None:
    (answer,) = alter(world, resource(group_id, (name, SET, str(value))))
    assert answer.error_code == NONE, answer.error_message


def delete(world: World, topics: dict[str, list[int]], group_id: str = "g") -> OffsetDeleteResponse:
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in numbers]
            )
            for name, numbers in topics.items()
        ],
    )
    answer = world.handle(ApiKey.OFFSET_DELETE, 0, request, principal="User:ops")
    assert isinstance(answer, OffsetDeleteResponse)
    return answer


def remove(
    world: World, *members: MemberIdentity | str, group_id: str = "g", version: int = 5
) -> LeaveGroupResponse:
    request = LeaveGroupRequest(
        group_id=group_id,
        members=[
            member if isinstance(member, MemberIdentity) else MemberIdentity(member_id=member)
            for member in members
        ],
    )
    answer = world.handle(ApiKey.LEAVE_GROUP, version, request, principal="User:ops")
    assert isinstance(answer, LeaveGroupResponse)
    return answer


def by_instance(instance_id: str, member_id: str = "") -> MemberIdentity:
    return MemberIdentity(member_id=member_id, group_instance_id=instance_id)
