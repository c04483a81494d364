"""From candidates to notifications: the rule with what it asks for (`qim_session.domain.push.decide`).

The marks of everybody are read first, in one round a thousand people. Only for those who are left, and only in
conversations with few of them, the writer is asked for the states, in one call a person.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from qim_common.enums import MemberState
from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.telemetry.metrics import PushMetrics
from qim_session.commands.as_read import carried_over
from qim_session.commands.push.gathering import Gathered
from qim_session.domain.cursors import NOTHING, Cursor
from qim_session.domain.push import (
    Candidate,
    Notification,
    PushedMessage,
    PushMarks,
    Standing,
    Verdict,
    decide,
    told_count,
)
from qim_session.storage.conversations import STATES_PER_CALL, Conversations, ConversationState
from qim_session.storage.push import MARKS_PER_CALL, PushMarkSource, Recipient

STATES_AT_ONCE: Final = 16
"""Calls of ConversationStates under way at the same time, of one batch."""

_Person: TypeAlias = tuple[TenantId, UserId]

Rule = Callable[[PushedMessage, PushMarks, Standing | None], Verdict]
"""As `decide`."""


class Decider:
    """Makes notifications.

    Args:
        unread_max_recipients: a conversation with more people to be told is told of without unread counts and bodies.
        body_max_bytes: of the body that goes along at most; 0: none.
    """

    def __init__(
        self,
        marks: PushMarkSource,
        conversations: Conversations,
        metrics: PushMetrics,
        *,
        unread_max_recipients: int,
        body_max_bytes: int = 0,
        rule: Rule = decide,
    ) -> None:
        self._marks = marks
        self._conversations = conversations
        self._metrics = metrics
        self._unread_max_recipients = unread_max_recipients
        self._body_max_bytes = body_max_bytes
        self._rule = rule

    async def notifications(self, gathered: Gathered) -> list[Notification]:
        """Who is told of what, in the order of `gathered`. Raises BackendUnavailable."""
        told = [
            Notification(tenant, None, conversation, candidate.message, candidate.count)
            for (tenant, conversation), candidate in gathered.topics.items()
        ]
        self._metrics.decisions.labels(Verdict.PUSH).inc(len(told))
        rows = list(gathered.people.items())
        for start in range(0, len(rows), MARKS_PER_CALL):
            told += await self._of(rows[start : start + MARKS_PER_CALL])
        return told

    async def _of(self, rows: Sequence[tuple[Recipient, Candidate]]) -> list[Notification]:
        found = await self._marks.of([recipient for recipient, _ in rows])
        marks = {recipient: mark for (recipient, _), mark in zip(rows, found, strict=True)}
        left = [row for row in rows if self._tells(row[1].message, marks[row[0]], None)]
        standings = await self._standings((recipient for recipient, _ in left), marks)
        told: list[Notification] = []
        for recipient, candidate in left:
            standing = standings.get(recipient)
            mark = marks[recipient]
            verdict = self._rule(candidate.message, mark, standing)
            self._metrics.decisions.labels(verdict).inc()
            if verdict is Verdict.PUSH:
                told.append(
                    Notification(
                        recipient.tenant,
                        recipient.user,
                        recipient.conversation,
                        candidate.message,
                        told_count(candidate, standing),
                        unread=None if standing is None else standing.unread,
                        muted=mark.flags.muted,
                        hidden=mark.flags.hidden,
                        body=self._body(candidate, standing),
                    )
                )
        return told

    def _tells(self, message: PushedMessage, marks: PushMarks, standing: Standing | None) -> bool:
        verdict = self._rule(message, marks, standing)
        if verdict is not Verdict.PUSH:
            self._metrics.decisions.labels(verdict).inc()
        return verdict is Verdict.PUSH

    def _body(self, candidate: Candidate, standing: Standing | None) -> bytes | None:
        # A state says that the person may read it now (design.md invariant 6); without one nothing does.
        if standing is None or self._body_max_bytes == 0:
            return None
        return candidate.body[: self._body_max_bytes]

    async def _standings(
        self, recipients: Iterable[Recipient], marks: Mapping[Recipient, PushMarks]
    ) -> dict[Recipient, Standing]:
        wanted = list(recipients)
        sizes = Counter((recipient.tenant, recipient.conversation) for recipient in wanted)
        by_person: dict[_Person, dict[ConversationId, Cursor]] = {}
        for recipient in wanted:
            if sizes[recipient.tenant, recipient.conversation] <= self._unread_max_recipients:
                read = marks[recipient].read
                person = by_person.setdefault((recipient.tenant, recipient.user), {})
                person[recipient.conversation] = NOTHING if read is None else read
        standings: dict[Recipient, Standing] = {}
        cut: dict[_Person, dict[ConversationId, Cursor]] = {}
        for who, cursors, states in await self._states(by_person):
            for state in states:
                standings[Recipient(*who, state.conversation)] = _standing(state)
            if over := carried_over(cursors, states):
                cut[who] = cut.get(who, {}) | over
        for who, _, states in await self._states(cut):
            for state in states:
                standings[Recipient(*who, state.conversation)] = _standing(state)
        return standings

    async def _states(
        self, by_person: Mapping[_Person, Mapping[ConversationId, Cursor]]
    ) -> list[tuple[_Person, Mapping[ConversationId, Cursor], list[ConversationState]]]:
        """What the writer answers about these read cursors, in calls of up to 500."""
        calls = [
            (person, dict(items[start : start + STATES_PER_CALL]))
            for person, cursors in by_person.items()
            for items in [list(cursors.items())]
            for start in range(0, len(items), STATES_PER_CALL)
        ]
        found: list[tuple[_Person, Mapping[ConversationId, Cursor], list[ConversationState]]] = []
        for start in range(0, len(calls), STATES_AT_ONCE):
            some = calls[start : start + STATES_AT_ONCE]
            answers = await asyncio.gather(*(self._ask(*call) for call in some), return_exceptions=True)
            for (person, cursors), states in zip(some, answers, strict=True):
                if isinstance(states, BaseException):
                    raise states
                found.append((person, cursors, states))
        return found

    async def _ask(self, person: _Person, cursors: Mapping[ConversationId, Cursor]) -> list[ConversationState]:
        read = {conversation: cursor.seq for conversation, cursor in cursors.items()}
        return await self._conversations.states(*person, read, with_preview=False)


def _standing(state: ConversationState) -> Standing:
    return Standing(
        member=state.state is MemberState.MEMBER, unread=state.unread_count, earliest_seq=state.earliest_available_seq
    )
