"""The common part of the players of older protocols: the nodes serve these on ports of their own."""

from __future__ import annotations

from typing import ClassVar, Final

from cluster.simulator.machine import address_of
from lineage.push.messages import CommandResponse, PingResponse
from quorate.generations.contest import GROUP
from quorate.generations.players.on_cluster import ClusterPlayer, require
from records import METADATA_SHARD, OLD_GROUPS_SINCE
from wire.apis import ApiKey
from wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.schema import Message

GROUP_RESOURCE: Final = 32
UPGRADE_MS: Final = 10_000.0
"""An idle cluster has a higher format level at all nodes within this time."""


class OlderPlayer(ClusterPlayer):
    """A protocol that the nodes serve on `port`; `group_configs` are the group's."""

    port: ClassVar[int]

    @property
    def group_configs(self) -> dict[str, str]:
        return {}

    def prepare(self) -> None:
        """Raise the format level, which the groups' records need, and set the group's configs."""
        node = self.cluster[self.cluster.wait_for_leader(METADATA_SHARD)].node
        node.host.call_soon(node.upgrade, lambda why: require(int(why is not None), f"upgrade: {why}"))
        machines = self.cluster.machines.values()
        self.cluster.wait_for(
            lambda: all(one.node.format_level >= OLD_GROUPS_SINCE for one in machines), UPGRADE_MS
        )
        configs = [AlterableConfig(name=name, value=value) for name, value in self.group_configs.items()]
        if configs:
            group = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=configs)
            request = IncrementalAlterConfigsRequest(resources=[group])
            answer = self.admin().ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
            require(answer.responses[0].error_code, "set the group's configs")

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The addresses at which the nodes serve the protocol."""
        return tuple((address_of(node_id), self.port) for node_id in self.cluster.machines)

    def tapped(self, message: Message) -> None:
        """Count a message of a member.

        An answer has its request's name, but for the answers to the requests of a coordinator."""
        name = type(message).__name__.removesuffix("Request")
        is_a_members = isinstance(message, PingResponse | CommandResponse)
        self.ledger.message(name if is_a_members else name.removesuffix("Response"))
