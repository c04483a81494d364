"""Carries a history out, line by line, through the public API, and remembers durably how far it has come.

A line is answered when it was carried out or refused. Then the cursor moves, and while its file becomes durable the next
line may already be on its way: repeating an accepted line has no second effect, its id is the same. After a refusal
nothing goes on before the cursor is durable, because a refused line would be judged anew, and perhaps differently.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from blake3 import blake3

from qim_client import GatewayClient, GroupSettings, OperatorClient, Outgoing, SendStream
from qim_common.errors import QimError, Reason
from qim_common.ids import ConversationId, TenantId, UserId
from qim_devkit.importing.batches import batches
from qim_devkit.importing.cursor import Cursor, CursorFile
from qim_devkit.importing.ids import line_id
from qim_devkit.importing.lines import ImportFileError, Line, Op, Person, Survey, digest, read

CALL_SECONDS: Final = 30.0
"""For one line or frame with its repeats; after that the import stops, and can be resumed."""

PEOPLE_MAX: Final = 1_000
"""Of one CreateGroup, the owner included (contracts.md, "Services")."""

IDS_FOR_MS: Final = 3_600_000
"""Request ids get a new time after an hour: long before the service could take them for forgotten ones."""

REFUSALS: Final = frozenset(
    {
        Reason.PERMISSION_DENIED,
        Reason.INVALID_ARGUMENT,
        Reason.MESSAGE_TOO_LARGE,
        Reason.MEMBER_LIMIT_EXCEEDED,
        Reason.OWNER_CANNOT_LEAVE,
        Reason.GROUP_FROZEN,
    }
)
"""Answers about the line itself: it is refused for good. Whatever else is answered stops the import before the line."""


class ImportStoppedError(Exception):
    """The import stands before a line that was not answered; `cause` is why. It can be resumed."""

    def __init__(self, line: int, cause: QimError) -> None:
        super().__init__(f"line {line}: {cause}")
        self.line = line
        self.cause = cause


class Importer:
    """One import into one group.

    Parameters:
        gateway, operator: joins are the operator's calls, everything else the end users'.
        file: an open cursor file, whose cursor fits to the history.
        user_of: the id of a person of the history.
        answered: told after each call how many lines are done and refused in all.
    """

    def __init__(
        self,
        gateway: GatewayClient,
        operator: OperatorClient,
        file: CursorFile,
        cursor: Cursor,
        *,
        tenant: TenantId,
        group: ConversationId,
        user_of: Callable[[Person], UserId],
        answered: Callable[[Cursor], None] = lambda cursor: None,
    ) -> None:
        self._gateway = gateway
        self._operator = operator
        self._file = file
        self._cursor = cursor
        self._tenant = tenant
        self._group = group
        self._user_of = user_of
        self._answered = answered
        self._import_id = bytes.fromhex(cursor.import_id)
        self._hash = blake3()
        self._saving: asyncio.Task[None] | None = None
        self._calls = 0

    async def run(self, history: Path, survey: Survey, owner: UserId, settings: GroupSettings) -> Cursor:
        """Import what is left. The cursor at the end; it is durable, also when this raises.

        Raises:
            ImportStoppedError: a line could not be answered.
            ImportFileError: the file is another one than before, or has too many people at the start.
        """
        self._take_up(history)
        try:
            async with self._gateway.open_stream() as stream:
                await self._create(survey, owner, settings)
                for batch in batches(self._left(history)):
                    await self._carry_out(stream, batch)
        finally:
            await self._saved()
        return self._cursor

    def _take_up(self, history: Path) -> None:
        cursor = self._cursor
        if cursor.digest and digest(history, cursor.offset) != cursor.digest:
            raise ImportFileError(
                f"{history}: its first {cursor.line} lines are not those that {self._file.path} knows as imported"
            )
        with history.open("rb") as file:
            self._hash.update(file.read(cursor.offset))

    def _left(self, history: Path) -> Iterator[Line]:
        return read(history, offset=self._cursor.offset, number=self._cursor.line)

    async def _create(self, survey: Survey, owner: UserId, settings: GroupSettings) -> None:
        if self._cursor.created:
            return
        people = [self._user_of(person) for person in survey.initial]
        if len({owner, *people}) > PEOPLE_MAX:
            raise ImportFileError(
                f"{len(people):,} people are in the group from the start (their first line is no join); "
                f"with the owner at most {PEOPLE_MAX:,} can be"
            )
        await self._save(self._cursor)
        await self._saved()
        try:
            await self._gateway.as_actor(self._tenant, owner).create_group(
                people, group=self._group, settings=settings, request_id=self._id(0), timeout=CALL_SECONDS
            )
        except QimError as error:
            raise ImportStoppedError(0, error) from None
        await self._save(replace(self._cursor, created=True))

    async def _carry_out(self, stream: SendStream, batch: Sequence[Line]) -> None:
        """One call, and the cursor behind it."""
        if batch[0].op is Op.MESSAGE:
            refused, stopped = await self._send(stream, batch)
        else:
            refused, stopped = await self._change(batch[0])
        answered = batch if stopped is None else batch[: stopped.line - batch[0].number]
        if answered:
            await self._move(answered[-1], len(answered), refused)
        if stopped is not None:
            raise stopped
        self._answered(self._cursor)

    async def _send(self, stream: SendStream, batch: Sequence[Line]) -> tuple[int, ImportStoppedError | None]:
        """How many lines were refused, and at which line it stops."""
        items = [
            Outgoing(
                self._gateway.as_actor(self._tenant, self._user_of(line.person)).actor,
                line.body,
                conversation=self._group,
                client_message_id=self._id(line.number),
            )
            for line in batch
        ]
        refused = 0
        for line, outcome in zip(batch, await stream.send(items, timeout=CALL_SECONDS), strict=True):
            if outcome.error is not None:
                if outcome.error.reason not in REFUSALS:
                    return refused, ImportStoppedError(line.number, outcome.error)
                refused += 1
        return refused, None

    async def _change(self, line: Line) -> tuple[int, ImportStoppedError | None]:
        call = self._join if line.op is Op.JOIN else self._leave
        try:
            await call(self._user_of(line.person), self._id(line.number))
        except QimError as error:
            if error.reason not in REFUSALS:
                return 0, ImportStoppedError(line.number, error)
            return 1, None
        return 0, None

    async def _join(self, user: UserId, request_id: bytes) -> None:
        await self._operator.add_members(self._group, [user], request_id=request_id, timeout=CALL_SECONDS)

    async def _leave(self, user: UserId, request_id: bytes) -> None:
        person = self._gateway.as_actor(self._tenant, user)
        await person.leave_group(self._group, request_id=request_id, timeout=CALL_SECONDS)

    def _id(self, number: int) -> bytes:
        return line_id(self._import_id, number, self._cursor.ids_ms)
