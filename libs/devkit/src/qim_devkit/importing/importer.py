"""Carries a history out, line by line, through the public API, and remembers durably how far it has come.

A line is answered when it was carried out or refused. Then the cursor moves, and while its file becomes durable the
next line may already be on its way: repeating an accepted line has no second effect, its id is the same. After a
refusal nothing goes on before the cursor is durable: a refused line would be judged anew, and perhaps differently.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from qim_client import GatewayClient, GroupSettings, OperatorClient, Outgoing, SendStream, actor
from qim_common.errors import QimError, Reason
from qim_common.ids import ConversationId, TenantId, UserId
from qim_devkit.importing.batches import batches
from qim_devkit.importing.cursor import Cursor, CursorFile
from qim_devkit.importing.ids import line_id
from qim_devkit.importing.lines import ImportFileError, Line, Op, Person, Survey, read

CALL_SECONDS: Final = 30.0
"""For one line or frame with its repeats; after that the import stops, and can be resumed."""

PEOPLE_MAX: Final = 1_000
"""Of one CreateGroup, the owner included (contracts.md, "Services")."""

IDS_FOR_MS: Final = 3_600_000
"""Request ids get a new time after an hour: long before the service could take them for forgotten ones."""

CALLS_IN_DOUBT: Final = 2
"""Calls of an interrupted run that its cursor may not have counted: one answered, and one on its way."""

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
        file: an open cursor file; `cursor` is where the import stands, and fits to the history.
        user_of: the id of a person of the history.
        answered: told after each call where the import stands.
        between: awaited before the next call, with the same; what it raises stops the import.
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
        between: Callable[[Cursor], Awaitable[None]] | None = None,
    ) -> None:
        self._gateway = gateway
        self._operator = operator
        self._file = file
        self._cursor = cursor
        self._tenant = tenant
        self._group = group
        self._user_of = user_of
        self._answered = answered
        self._between = between
        self._import_id = bytes.fromhex(cursor.import_id)
        self._saving: asyncio.Task[None] | None = None
        self._calls = 0

    async def run(self, history: Path, survey: Survey, owner: UserId, settings: GroupSettings) -> Cursor:
        """Import what is left. Returns the cursor at the end, which is durable; so it is when this raises.

        Raises:
            ImportStoppedError: a line was not answered.
            ImportFileError: too many people are in the group from the start.
        """
        try:
            async with self._gateway.open_stream() as stream:
                if not self._cursor.created:
                    await self._create(survey, owner, settings)
                left = read(history, offset=self._cursor.offset, number=self._cursor.line)
                for batch in batches(line for line in left if line.number not in self._cursor.ahead):
                    await self._renew_ids()
                    await self._carry_out(stream, batch)
                    if self._between is not None:
                        await self._between(self._cursor)
        finally:
            await self._saved()
        return self._cursor

    async def _create(self, survey: Survey, owner: UserId, settings: GroupSettings) -> None:
        people = [self._user_of(person) for person in survey.initial]
        if len({owner, *people}) > PEOPLE_MAX:
            raise ImportFileError(
                f"{len(people):,} people are in the group from the start (their first line is no join); "
                f"with the owner there can be {PEOPLE_MAX:,}"
            )
        await self._save(self._cursor, at_once=True)
        try:
            await self._gateway.as_actor(self._tenant, owner).create_group(
                people, group=self._group, settings=settings, request_id=self._id(0), timeout=CALL_SECONDS
            )
        except QimError as error:
            raise ImportStoppedError(0, error) from None
        await self._save(replace(self._cursor, created=True), at_once=True)

    async def _renew_ids(self) -> None:
        """Gives the ids another time now and then, once nothing can be left half done from an earlier run."""
        now = int(time.time() * 1000)
        if self._calls >= CALLS_IN_DOUBT and now - self._cursor.ids_ms > IDS_FOR_MS:
            await self._save(replace(self._cursor, ids_ms=now), at_once=True)

    async def _carry_out(self, stream: SendStream, batch: Sequence[Line]) -> None:
        """One call, and the cursor behind it."""
        errors = await (self._send(stream, batch) if batch[0].op is Op.MESSAGE else self._change(batch[0]))
        self._calls += 1
        refusals = [error is not None and error.reason in REFUSALS for error in errors]
        stop = next((at for at, error in enumerate(errors) if error is not None and not refusals[at]), len(batch))
        cursor = self._cursor
        if stop:
            refused = sum(refusals[:stop])
            cursor = replace(
                cursor,
                line=batch[stop - 1].number,
                offset=batch[stop - 1].end,
                done=cursor.done + stop - refused,
                refused=cursor.refused + refused,
                ahead=tuple(number for number in cursor.ahead if number > batch[stop - 1].number),
            )
        ahead = [line.number for line, refusal in zip(batch[stop:], refusals[stop:], strict=True) if refusal]
        if ahead:
            cursor = replace(cursor, ahead=tuple(sorted({*cursor.ahead, *ahead})), refused=cursor.refused + len(ahead))
        await self._save(cursor, at_once=any(refusals))
        self._answered(cursor)
        if stop < len(batch) and (error := errors[stop]) is not None:
            raise ImportStoppedError(batch[stop].number, error)

    async def _send(self, stream: SendStream, batch: Sequence[Line]) -> list[QimError | None]:
        """What refused or stopped each message; None: it was carried out."""
        items = [
            Outgoing(
                actor(self._tenant, self._user_of(line.person)),
                line.body,
                conversation=self._group,
                client_message_id=self._id(line.number),
            )
            for line in batch
        ]
        return [outcome.error for outcome in await stream.send(items, timeout=CALL_SECONDS)]

    async def _change(self, line: Line) -> list[QimError | None]:
        """The same for a join or a leave."""
        user, request_id = self._user_of(line.person), self._id(line.number)
        try:
            if line.op is Op.JOIN:
                await self._operator.add_members(self._group, [user], request_id=request_id, timeout=CALL_SECONDS)
            else:
                person = self._gateway.as_actor(self._tenant, user)
                await person.leave_group(self._group, request_id=request_id, timeout=CALL_SECONDS)
        except QimError as error:
            return [error]
        return [None]

    async def _save(self, cursor: Cursor, *, at_once: bool) -> None:
        """Begin to save the cursor; with `at_once` return when it is durable."""
        await self._saved()
        self._cursor = cursor
        self._saving = asyncio.create_task(self._file.save(cursor))
        if at_once:
            await self._saved()

    async def _saved(self) -> None:
        """Wait until the cursor that was saved last is durable. Raises OSError when it cannot be written."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            await asyncio.shield(saving)

    def _id(self, number: int) -> bytes:
        return line_id(self._import_id, number, self._cursor.ids_ms)
