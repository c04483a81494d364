"""A client workload that keeps books: what was acknowledged, what is not known, and in the end what everybody is told.

Each account is one conversation of the reference model (tests/model): its calls go one after another, so that the model
foretells every answer, seq and version. A call whose outcome is not known is repeated with its id until it is: then it
happened once, or not at all. Therefore what was acknowledged folds to exactly the model, and `check` compares that with
every person's answers. What many clients do at the same time in one conversation is tests/support/chorus.py.
"""

from __future__ import annotations

import asyncio
import functools
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from tests.model.lanes import Lane, new_people
from tests.model.moves import Move, Told, draw_id
from tests.model.reader import Reader, compare_list, outcome
from tests.model.sights import expected_sight
from tests.model.world import TENANT, World
from tests.support.account import POLICIES, Account

from qim_client.actor import MAX_PAGE, ActorClient
from qim_client.answers import MailboxPage
from qim_client.values import DeviceCursor, SeqRange
from qim_common.errors import QimError, ResyncRequired
from qim_common.ids import ConversationId, DeviceId, UserId

PEOPLE: Final = 4
MOST_SEQS: Final = 450
"""An account rests here: what two accounts deliver to their people has to fit into one page of a mailbox."""

SETTLE_SECONDS: Final = 90.0
NOT_NOW: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
    }
)
"""What leaves the outcome open, or says that it may be otherwise later."""

NOT_NOW_REASONS: Final = frozenset(
    {"BACKEND_UNAVAILABLE", "INSTANCE_FENCED", "ARCHIVE_BACKLOG_FULL", "OVERLOADED", "AUDIT_UNAVAILABLE"}
)
"""Refusals that pass, or are mended by an operator: nothing was done, or it is not known."""


class Ledger:
    """Accounts of groups with these ids, and of direct conversations, that are worked on until they are stopped. Equal
    seeds draw equal calls.

    Attributes:
        done: calls that were answered so far.
        troubles: by reason, or code where there is none, how often a call could not be answered.
        resynchronised: whose phone was told to read which conversation anew.
        marking: whether people go on reading and their phones acknowledging; set False some time before an instance is
            lost, because these marks are written behind (storage.md, "Session").
    """

    def __init__(
        self, world: World, groups: Sequence[ConversationId], *, seed: int, directs: int = 1, pace: float = 0.03
    ) -> None:
        self.world = world
        self.accounts: list[Account] = []
        self.done = 0
        self.troubles: Counter[str] = Counter()
        self.marking = True
        self.resynchronised: set[tuple[UserId, ConversationId]] = set()
        self._pace = pace
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()
        self._news = asyncio.Event()
        people: list[UserId] = []
        for number, group in enumerate(groups):
            # Two accounts each share their people, who so have two conversations.
            people = people if number % 2 else new_people(PEOPLE)
            lane = Lane.of_group(people)
            lane.group = group
            self._open(lane, seed * 1_000 + number)
        for number in range(directs):
            self._open(Lane.of_two(notes=False), seed * 1_000 + len(groups) + number)

    def _open(self, lane: Lane, seed: int) -> None:
        account = Account(lane, random.Random(seed))  # noqa: S311 - no secret
        self.accounts.append(account)
        if not lane.model.pair:
            policy = account.dice.choice(POLICIES)
            people = lane.people[: account.dice.randrange(1, PEOPLE)]
            self._first_move(account, lane.create(policy, people, by=lane.people[0], request=draw_id()))
        else:
            self._first_move(account, lane.send(lane.people[0], b"first", request=draw_id()))

    def _first_move(self, account: Account, move: Move) -> None:
        account.lane.do(move)
        account.lasting.append(move)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """All accounts are worked on inside of the context; on leaving, everything that was begun is settled."""
        self._ending.clear()
        self._tasks = [asyncio.create_task(self._work(account)) for account in self.accounts]
        try:
            yield
        finally:
            self._ending.set()
            async with asyncio.timeout(SETTLE_SECONDS):
                await asyncio.gather(*self._tasks)

    async def meet_everybody(self) -> None:
        """Each person's list is asked for: who was never seen cannot be served without the conversation sets."""
        for who in {person for account in self.accounts for person in account.lane.people}:
            await self.world.person(who).list_conversations()
            await self._pull(self._phone(who), limit=1)

    async def more(self, count: int) -> None:
        """Waits for so many further answers; raises what ended an account."""
        wanted = self.done + count
        async with asyncio.timeout(SETTLE_SECONDS):
            while self.done < wanted:
                for task in self._tasks:
                    if task.done():
                        task.result()
                self._news.clear()
                await self._news.wait()

    async def carry_on(self, draw: Callable[[Account], Move]) -> None:
        """One call of each account, which is not worked on now."""
        for account in self.accounts:
            self._do(account, draw(account))
            await self._carry_out_all(account)

    async def _work(self, account: Account) -> None:
        while not self._ending.is_set():
            await self._carry_out_all(account)
            if self.marking and account.dice.random() < 0.05:
                await self._acknowledge(account, account.dice.choice(account.lane.people))
            if account.model.head < MOST_SEQS:
                self._do(account, account.draw(marking=self.marking))
            await asyncio.sleep(self._pace)
        await self._carry_out_all(account)

    def _do(self, account: Account, move: Move) -> None:
        before = (account.model.head, account.model.revision)
        account.lane.do(move)
        if before != (account.model.head, account.model.revision):
            account.lasting.append(move)

    async def _carry_out_all(self, account: Account) -> None:
        while account.lane.pending:
            queued = account.lane.pending.pop(0)
            assert isinstance(queued, tuple), "accounts queue calls only"
            await self._carry_out(account, *queued)

    async def _carry_out(self, account: Account, move: Move, foretold: Told | str) -> None:
        answer = await self.settled(lambda: outcome(move.carry_out(self.world)))
        where = f"group {account.lane.group.hex()}, {move.name}"
        assert isinstance(answer, str) == isinstance(foretold, str), f"{where}: {answer}, not {foretold}"
        if isinstance(answer, str) or isinstance(foretold, str):
            assert answer == foretold, f"{where}: {answer}, not {foretold}"
            return
        told = move.tell(answer)
        assert told == {name: foretold[name] for name in told}, f"{where}: {told}, not {foretold}"
        if move.request is not None:
            assert account.first.setdefault(move.request, answer) == answer, f"{where}: not the first answer"

    async def settled(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """The answer to a call that is repeated, with its id, until its outcome is known."""
        while True:
            try:
                answer = await attempt()
            except QimError as error:
                if error.code not in NOT_NOW:
                    raise
                self.troubles[error.reason or error.code.name] += 1
            else:
                # A reason instead of an answer: some say "not now" by name.
                if not isinstance(answer, str) or answer not in NOT_NOW_REASONS:
                    self.done += 1
                    self._news.set()
                    return answer
                self.troubles[answer] += 1
            await asyncio.sleep(0.1)  # the pause of a retry

    def _phone(self, who: UserId) -> ActorClient:
        device = DeviceId(uuid.uuid5(uuid.NAMESPACE_OID, who.hex()).bytes)
        return self.world.gateway.as_actor(TENANT, who, device)

    async def _pull(self, phone: ActorClient, *, limit: int, ack: Sequence[DeviceCursor] = ()) -> MailboxPage:
        """What waits for a phone. Where it is told to resynchronise, it reads the conversation anew and says so."""
        while True:
            try:
                page: MailboxPage = await self.settled(functools.partial(phone.pull_mailbox, ack=ack, limit=limit))
            except ResyncRequired as told:
                group = ConversationId(bytes.fromhex(told.metadata["conversation_id"]))
                newest = int(told.metadata["newest_seq"])
                self.resynchronised.add((phone.actor.user, group))
                (account,) = (one for one in self.accounts if one.lane.group == group)
                account.acknowledged[phone.actor.user] = newest
                # What was acknowledged before is taken: it was of the present generation.
                ack = [DeviceCursor(group, int(told.metadata["generation"]), newest)]
            else:
                return page

    async def _acknowledge(self, account: Account, who: UserId) -> None:
        """The person's phone acknowledges some of what it has got."""
        phone, group = self._phone(who), account.lane.group
        page = await self._pull(phone, limit=30)
        entries = [entry for entry in page.entries if entry.conversation == group]
        if entries:
            cursor: DeviceCursor = account.dice.choice(entries).cursor
            await self._pull(phone, ack=[cursor], limit=1)
            account.acknowledged[who] = max(account.acknowledged.get(who, 0), cursor.seq)

    async def check(self, *, repeats: int = 4) -> None:
        """Everybody is told exactly what was acknowledged, on every path; the newest calls, repeated, are answered as
        at first. Call it when nothing is at work."""
        for account in self.accounts:
            for move in account.lasting[-repeats:]:
                self._do(account, move)
        async with asyncio.TaskGroup() as tasks:
            for account in self.accounts:
                tasks.create_task(self._check_account(account))
        for people in {tuple(account.lane.people) for account in self.accounts}:
            for who in people:
                sights = {
                    account.lane.group: expected_sight(account.model, who)
                    for account in self.accounts
                    if who in account.lane.people
                }
                await compare_list(self.world, who, sights)
                await self._check_phone(who)

    async def _check_account(self, account: Account) -> None:
        await self._carry_out_all(account)
        model, group = account.model, account.lane.group
        for who in account.lane.people:
            sight = expected_sight(model, who)
            for turn in (12, 14):  # backwards and the entry; forwards and the rights
                await Reader(self.world, group, sight, turn).compare()
        if not model.pair:
            details = await self.world.operators["operator"].get_group(group)
            told = (details.owner, details.membership_version, details.revision, details.member_count)
            assert told == (model.owner, model.version, model.revision, len(model.members))
            assert (details.head_seq, details.group_floor_seq) == (model.head, model.floor)
        recipients = sorted(await self.world.members_at(group, model.version))
        assert recipients == sorted(model.members)

    async def _check_phone(self, who: UserId) -> None:
        """The person's phone is given exactly what was delivered and what it has not acknowledged."""
        given: dict[ConversationId, list[int]] = {}
        moved: dict[ConversationId, int] = {}
        phone, more = self._phone(who), True
        while more:
            page = await self._pull(phone, limit=MAX_PAGE)
            for entry in page.entries:
                stretch = entry.withheld or SeqRange(entry.cursor.seq, entry.cursor.seq)
                given.setdefault(entry.conversation, []).extend(range(stretch.first, stretch.last + 1))
            # What stands behind a conversation that has to be read anew comes when this is acknowledged.
            more = page.more
            if more:
                await self._pull(phone, ack=[entry.cursor for entry in page.entries], limit=1)
                moved |= {entry.conversation: entry.cursor.seq for entry in page.entries}
        for account in (one for one in self.accounts if who in one.lane.people):
            group = account.lane.group
            wanted = [seq for seq in account.model.delivered(who) if seq > account.acknowledged.get(who, 0)]
            told = sorted(given.get(group, []))
            assert told == wanted, f"group {group.hex()}, the phone of {who.hex()}: {told}, not {wanted}"
            account.acknowledged[who] = max(account.acknowledged.get(who, 0), moved.get(group, 0))
