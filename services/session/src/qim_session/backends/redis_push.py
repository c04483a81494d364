"""What a push consumer keeps in and reads from the session instances."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from qim_common.keys import PushKeys
from qim_common.redis import Argument, Instance, checked, load_script, run
from qim_common.topology import Topology
from qim_session.backends.person_places import PersonPlaces
from qim_session.domain.cursors import Cursor
from qim_session.domain.flags import NO_FLAGS, Flags
from qim_session.domain.push import PushMarks
from qim_session.storage.push import Recipient

MOVE_CHECKPOINT: Final = load_script("qim_session", "move_checkpoint")


class MoveStatus(IntEnum):
    """The status codes of move_checkpoint.lua."""

    MOVED = 0
    ANOTHER = 1


class RedisPushCheckpoints:
    """The `PushCheckpoints` of one consumer, on the first session instance."""

    def __init__(self, instance: Instance, keys: PushKeys) -> None:
        self._instance = instance
        self._key = keys.checkpoints

    async def read(self, partitions: Sequence[int]) -> list[bytes | None]:
        """As `PushCheckpoints.read`."""
        if not partitions:
            return []
        stored: list[bytes | None] = await self._instance.call("HMGET", self._key, *map(str, partitions))
        return stored

    async def move(self, partition: int, expected: bytes | None, to: bytes) -> bool:
        """As `PushCheckpoints.move`."""
        status = await run(self._instance, MOVE_CHECKPOINT, [self._key], [str(partition), expected or b"", to])
        return bool(status == MoveStatus.MOVED)


class RedisPushMarks:
    """The `PushMarkSource` of the session instances: one round for all people of an instance."""

    def __init__(self, instances: Sequence[Instance], topology: Topology) -> None:
        self._places = PersonPlaces(instances, topology)

    async def of(self, recipients: Sequence[Recipient]) -> list[PushMarks]:
        """As `PushMarkSource.of`."""
        commands: dict[Instance, list[Sequence[Argument]]] = {}
        asked: dict[Instance, list[int]] = {}
        for number, recipient in enumerate(recipients):
            instance, keys = self._places.locate(recipient.tenant, recipient.user)
            commands.setdefault(instance, []).extend(
                (("HGET", keys.read_cursors, recipient.conversation), ("HGET", keys.flags, recipient.conversation))
            )
            asked.setdefault(instance, []).append(number)
        found: dict[int, PushMarks] = {}
        for instance, numbers in asked.items():
            replies = checked(await instance.pipeline(commands[instance]))
            for number, cursor, flags in zip(numbers, replies[::2], replies[1::2], strict=True):
                found[number] = PushMarks(
                    read=None if cursor is None else Cursor.unpack(cursor),
                    flags=NO_FLAGS if flags is None else Flags.unpack(flags),
                )
        return [found[number] for number in range(len(recipients))]
