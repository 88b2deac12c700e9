"""An input that grows while it is read: opened in full once, after which each look costs only what is new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from history.reading.opening import open_node
from history.reading.source import NothingToRead
from history.words import shard_name
from quorate.spark.errors import InputError
from raftlog.env.object_stores import StoreError, files_at

from .inputs import InputLog, input_shards, of_store, open_input
from .listing import listed_files
from .tail import DecidedEnd, InputTail


class FollowedInput:
    """A node's directory or a cluster's folder; raises `InputError` as `open_input` does."""

    def __init__(self, path: str) -> None:
        self.opened: InputLog = open_input(path)
        self._tail = InputTail(path)

    @property
    def cluster_id(self) -> str:
        return self.opened.cluster_id

    @property
    def is_alone(self) -> bool:
        return self._tail.is_alone

    def look(self) -> dict[int, DecidedEnd]:
        """The last decided entry of each shard as of now."""
        try:
            return self._tail.look()
        except StoreError as error:
            raise of_store(error) from None

    def up_to(self, ends: Mapping[int, int]) -> InputLog:
        """The input up to the end of a batch, in its shards; later entries are not read, damaged or not.

        A batch was already decided when it started. After a restart it therefore suffices that a directory
        holds it, whatever commit index its files name. Raises `InputError` if no directory does.
        """
        reached = self.look()
        for shard, last in ends.items():
            holds_to = reached[shard].holds_to if shard in reached else 0
            if holds_to < last:
                raise InputError(
                    f"{self.opened.path}: {shard_name(shard)} ends with entry {holds_to}, but the batch "
                    f"that was begun ends with entry {last}",
                    "give the log that the checkpoint was made from, or wait until this node has caught up",
                )
        batch = {shard: replace(reached[shard], index=last) for shard, last in ends.items()}
        return self.listed({**reached, **batch})

    def listed(self, reached: Mapping[int, DecidedEnd]) -> InputLog:
        """The input as of now, decided up to the given entries; raises `InputError`."""
        try:
            log = open_node(self.opened.path)
            files = listed_files(files_at(self.opened.path), self.opened.path)
            shards = input_shards(files, self._tail, reached)
        except StoreError as error:
            raise of_store(error) from None
        except (NothingToRead, OSError) as error:
            hint = "start again when it is back: the stream continues where it stopped"
            raise InputError(f"{self.opened.path} was removed while it was read: {error}", hint) from None
        return replace(self.opened, log=log, remarks=log.remarks, shards=shards, files=files)
