"""What `conversation_facts.lua` answers for one person in one conversation."""

from __future__ import annotations

from typing import Any, Final

from qim_common.records import unpack_record
from qim_writer.domain.stays import Person, unpack_person
from qim_writer.domain.stored_values import RAISED
from qim_writer.storage import Facts, Look

_RECORD: Final = 15
"""The place of the record at the head in a row."""
_ARCHIVED_VERSION: Final = 17


def unpack_facts(row: list[Any]) -> Facts | None:
    """The facts of one row; None for no conversation."""
    version, revision, generation, policy, count, floor, created, concerned, before, removed, removed_ms, *rest = row
    if version is None:
        return None
    big, current, older, head, _, raised = rest[:6]
    head = int(head or 0)
    newest = int(before) if int(concerned) == head else head
    return Facts(
        version=int(version),
        revision=int(revision),
        generation=int(generation),
        packed_policy=policy,
        member_count=int(count),
        floor=int(floor),
        created_ms=int(created),
        head=head,
        newest_broadcast=newest,
        newest_broadcast_ms=int(removed_ms) if int(removed or 0) == newest > 0 else None,
        person=None if current is None else unpack_person(current, older),
        big=big == b"1",
        raised=() if raised is None else _raised(raised),
    )


def _raised(packed: bytes) -> tuple[tuple[int, int], ...]:
    return tuple((generation, int.from_bytes(base, "big")) for generation, base in RAISED.iter_unpack(packed))


def unpack_look(row: list[Any]) -> Look | None:
    """The same with the record at the head. Where a change waits for the archive, version and stays are those of the
    archived head; None for a conversation whose creation does."""
    facts = unpack_facts(row)
    if facts is None:
        return None
    version = archived_version(row)
    if version == 0:
        return None
    if version is not None:
        facts = facts._replace(version=version, person=_person_at(facts.person, version))
    record = row[_RECORD]
    return Look(facts, None if record is None else unpack_record(facts.head, record))


def archived_version(row: list[Any]) -> int | None:
    """The version that the archive has, 0 for none; None where no change waits for the archive."""
    if len(row) <= _ARCHIVED_VERSION or row[_ARCHIVED_VERSION] is None:
        return None
    return int(row[_ARCHIVED_VERSION])


def _person_at(person: Person | None, version: int) -> Person | None:
    """The person as of a version, None before the first stay."""
    if person is None:
        return None
    stays = tuple(stay.at_version(version) for stay in person.stays if stay.began_version <= version)
    return person._replace(stays=stays) if stays else None
