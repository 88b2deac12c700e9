"""A consumer group whose members compute the assignment themselves, in proportion to their weights.

    quorate up --topic orders:12
    python examples/client_side_assignor.py 3     # three times the weight
    python examples/client_side_assignor.py 1     # in another terminal

Each member announces its weight as metadata of the assignor "weighted"; one of them is asked to compute the
assignment. docs/protocol-extensions.md has the rules and every byte. Stock Kafka clients do not know this
protocol, but may join the group all the same; Quorate's own assignor takes over while they are members.
"""

import sys
import time

from client_assignor_member import ClientAssignorMember, CoordinatorRefused

from quorate.connection import ConnectionLost
from wire.messages.consumer_group_heartbeat import TopicPartitions
from wire.messages.consumer_group_install_assignment import Member
from wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentResponse
from wire.messages.extended_consumer_group_heartbeat import Assignor


def share_out(group: ConsumerGroupPrepareAssignmentResponse) -> list[Member]:
    """Give each partition to the member with the least for its weight; one byte of metadata is the weight."""
    given = {member.member_id: Member(member_id=member.member_id) for member in group.members}
    counts = dict.fromkeys(given, 0)
    for topic in group.topics:
        takers = [one for one in group.members if topic.topic_id in one.subscribed_topic_ids]
        parts: dict[str, list[int]] = {one.member_id: [] for one in takers}
        for partition in range(topic.num_partitions):
            taker = min(
                takers, key=lambda one: ((counts[one.member_id] + 1) / one.metadata_bytes[0], one.member_id)
            )
            parts[taker.member_id].append(partition)
            counts[taker.member_id] += 1
        for member_id, partitions in parts.items():
            if partitions:
                given[member_id].topic_partitions.append(
                    TopicPartitions(topic_id=topic.topic_id, partitions=partitions)
                )
    return list(given.values())


def main() -> None:
    weight = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    host, _, port = (sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:9092").partition(":")
    offer = Assignor(name="weighted", metadata_bytes=bytes([weight]))
    member = ClientAssignorMember([(host, int(port))], "weighted-orders", ["orders"], [offer], share_out)
    trouble = ""
    try:
        while True:
            try:
                answer = member.heartbeat()
                if member.compute():
                    print("I have shared out the partitions")
                trouble = ""
            except (ConnectionLost, CoordinatorRefused) as error:
                if str(error) != trouble:
                    trouble = str(error)
                    print(f"{trouble}; trying again until it works")
                time.sleep(0.2)
                continue
            if answer.assignment is not None:
                print("mine:", *sorted(p for numbers in member.owned.values() for p in numbers))
            time.sleep(member.interval_ms / 1_000)
    except KeyboardInterrupt:
        member.leave()


if __name__ == "__main__":
    main()
