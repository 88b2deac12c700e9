"""Worlds after a random schedule, for tests that read their logs."""

from __future__ import annotations

import random

from coordinator.state.group_records import MEMBERSHIP_TYPES
from records import RawRecord, group_id_of
from tests.support.schedules import GROUPS
from tests.support.schedules_in_parts import InParts, steps_in_parts
from tests.support.schedules_of_every_request import EveryRequest, steps
from tests.support.world import Entry as Written
from tests.support.world import World
from wire.apis import ApiKey
from wire.messages.delete_groups import DeleteGroupsRequest


def random_world(seed: int, *, in_parts: bool) -> World:
    rng = random.Random(seed)
    machine = InParts() if in_parts else EveryRequest()
    possible = steps_in_parts(machine, rng) if isinstance(machine, InParts) else steps(machine, rng)
    for number in range(500):
        rng.choice(possible)()
        if number % 5 == 0:
            machine.everybody(rng.choice(GROUPS))
        if number == 250:
            delete_all(machine)
    return machine.world


def delete_all(machine: EveryRequest) -> None:
    for client in machine.clients.values():
        client.epoch = client.epoch or 1
        client.leave()
    machine.world.sleep(3_600_000)
    machine.world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[*GROUPS]))


def membership_records(written: Written, group_id: str) -> tuple[RawRecord, ...]:
    return tuple(r for r in written.records if r.type in MEMBERSHIP_TYPES and group_id_of(r) == group_id)
