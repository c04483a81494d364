"""One call of an operator or a back end, as the journal writes it down."""

from __future__ import annotations

from dataclasses import dataclass

from qim_common.identity import Peer


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """Who asked for what, and what came of it.

    Attributes:
        people: how many were named; never who.
        detail: what else was asked, in numbers and words of this service only: nothing that a caller typed.
        outcome: "OK", or the reason of the refusal. Until it is known: cut off by the caller's cancel, or a fault here.
        version, seq, changed: of a membership change that was carried out.
        revision: the group's after a change without a seq.
        dry_run: nothing was to be changed.
    """

    method: str
    caller: Peer
    tenant_id: int
    group_id: bytes
    initiator: bytes = b""
    people: int = 0
    detail: str = ""
    outcome: str = "UNFINISHED"
    version: int = 0
    seq: int = 0
    changed: int = 0
    revision: int = 0
    dry_run: bool = False
