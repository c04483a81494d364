"""What becomes of each send of a run, by what was read just before. Pure.

Unlike the send script (design.md invariant 1) this is no part of the commit: between the reading and the taking of
seqs anything may happen. The expected membership version is not compared, and nobody can be frozen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from qim_common.errors import IdempotencyKeyReused, PermissionDenied, QimError, RequestTooOld
from qim_common.ids import UserId
from qim_writer.backends.scylla.requests import Answer, too_old
from qim_writer.storage import Send


@dataclass(slots=True)
class Verdicts:
    """The sends of a run by what becomes of them.

    Attributes:
        accepted: they get new seqs, in this order.
        twins: for the place of an accepted one, later sends with the same id and content, which get its answer.
        repeated: they have an answer from before.
        refused: with the reason.
    """

    accepted: list[Send]
    twins: dict[int, list[Send]]
    repeated: list[tuple[Send, Answer]]
    refused: list[tuple[Send, QimError]]


def judge(sends: Sequence[Send], answers: Mapping[bytes, Answer], members: Collection[UserId], now_ms: int) -> Verdicts:
    """Judge the sends of one conversation in their order; `answers` by the field of their key."""
    found = Verdicts([], {}, [], [])
    places: dict[bytes, int] = {}
    for send in sends:
        field, digest = send.key.field, send.key.digest
        answer = answers.get(field)
        if answer is not None:
            if answer.digest == digest:
                found.repeated.append((send, answer))
            else:
                found.refused.append((send, IdempotencyKeyReused()))
        elif field in places:
            if found.accepted[places[field]].key.digest == digest:
                found.twins.setdefault(places[field], []).append(send)
            else:
                found.refused.append((send, IdempotencyKeyReused()))
        elif too_old(send.key.time_ms, now_ms):
            found.refused.append((send, RequestTooOld()))
        elif send.sender not in members:
            found.refused.append((send, PermissionDenied()))
        else:
            places[field] = len(found.accepted)
            found.accepted.append(send)
    return found
