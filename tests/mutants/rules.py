"""The weakened rules: for each one the text of the production source that holds it, and what stands there instead.

Every one is a mistake that somebody could make, and each must be noticed by a test (`make mutants`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WRITER: Final = "services/writer/src/qim_writer"
SESSION: Final = "services/session/src/qim_session"


@dataclass(frozen=True)
class Mutant:
    """One rule, weakened. `text` occurs exactly once in `file`; `rule` is where the rule stands."""

    name: str
    rule: str
    file: str
    text: str
    instead: str

    def applied(self, source: str) -> str:
        """The weakened source. Raises ValueError where the rule is not found as it is described here."""
        if source.count(self.text) != 1:
            raise ValueError(f"{self.name}: {self.file} holds its text {source.count(self.text)} times, not once")
        return source.replace(self.text, self.instead)


def _lua(name: str) -> str:
    return f"{WRITER}/lua/{name}.lua"


def _domain(name: str) -> str:
    return f"{WRITER}/domain/{name}.py"


def _commands(name: str) -> str:
    return f"{WRITER}/commands/{name}.py"


def _session(path: str) -> str:
    return f"{SESSION}/{path}"


CHANGES: Final = (
    Mutant(
        "the version is not compared when a change commits",
        "invariant 2",
        _lua("change_members"),
        "if version ~= tonumber(ARGV[5]) or m[4] ~= ARGV[6] then",
        "if m[4] ~= ARGV[6] then",
    ),
    Mutant(
        "the policy is not compared when a change commits",
        "invariant 2",
        _lua("change_members"),
        "if version ~= tonumber(ARGV[5]) or m[4] ~= ARGV[6] then",
        "if version ~= tonumber(ARGV[5]) then",
    ),
    Mutant(
        "J instead of J-1: joined_at hides the own join",
        "invariant 5",
        _lua("change_members"),
        "pack('>I6I6I6I6I6', head, history_from, 0, made, 0)",
        "pack('>I6I6I6I6I6', seq, math.max(history_from, 0), 0, made, 0)",
    ),
    Mutant(
        "J instead of J-1: history_from hides the own join",
        "invariant 5",
        _lua("change_members"),
        "history_from = math.max(head - back, 0)",
        "history_from = math.max(seq - back, 0)",
    ),
    Mutant(
        "L+1 instead of L",
        "invariant 5",
        _lua("change_members"),
        "pack('>I6', seq), pack('>I6', made)",
        "pack('>I6', seq + 1), pack('>I6', made)",
    ),
    Mutant(
        "somebody who comes back keeps the range of the stay before",
        "decision: rejoining",
        _lua("change_members"),
        "stays[2 * i] = char(1, flags) .. sub(before, 3, 5) .. stay .. sub(before, 36)",
        "stays[2 * i] = char(1, flags) .. sub(before, 3, 5) .. sub(stay, 1, 6) .. sub(before, 12, 17)"
        " .. sub(stay, 13) .. sub(before, 36)",
    ),
    Mutant(
        "somebody who comes back loses the own clear point",
        "decision: own clear",
        _lua("change_members"),
        "stays[2 * i] = char(1, flags) .. sub(before, 3, 5) .. stay .. sub(before, 36)",
        "stays[2 * i] = char(1, flags) .. sub(before, 3, 5) .. stay .. '\\0\\0\\0\\0\\0\\0'",
    ),
    Mutant(
        "every stay keeps earlier ones",
        "decision: rejoining",
        _domain("changes"),
        "keeps_earlier=settings.rejoin is RejoinHistory.ALL_STAYS,",
        "keeps_earlier=True,",
    ),
    Mutant(
        "LAST_N is off by one",
        "decision: newcomers",
        _domain("policy"),
        "return EVERYTHING if self.newcomer is NewcomerPolicy.ALL else self.last_n",
        "return EVERYTHING if self.newcomer is NewcomerPolicy.ALL else self.last_n and self.last_n - 1",
    ),
    Mutant(
        "a removal's own leaver_history is ignored",
        "decision: leavers",
        _domain("changes"),
        "leaver = policy.settings.leaver if request.leaver is None else request.leaver",
        "leaver = policy.settings.leaver",
    ),
    Mutant(
        "the member limit counts the newcomers alone",
        "MEMBER_LIMIT_EXCEEDED",
        _domain("changes"),
        "if people and count > state.policy.settings.member_limit:",
        "if people and len(people) > state.policy.settings.member_limit:",
    ),
    Mutant(
        "an owner may leave others behind",
        "decision: the owner leaves",
        _domain("changes"),
        "        if count:\n            raise OwnerCannotLeave\n",
        "",
    ),
    Mutant(
        "a change that is in effect already makes an event",
        "invariant 8",
        _domain("changes"),
        "people = tuple(sorted(user for user in request.people if not _present(state, user)))",
        "people = tuple(sorted(request.people))",
    ),
    Mutant(
        "a frozen group takes newcomers",
        "GROUP_FROZEN",
        _domain("changes"),
        "    if state.policy.frozen:\n        raise GroupFrozen\n",
        "",
    ),
    Mutant(
        "who left stays in the list of members",
        "invariant 3",
        _lua("change_members"),
        "  call('ZREM', grpmem, unpack(members))",
        "  members = nil",
    ),
    Mutant(
        "the last change decides who was a member at V, not the first",
        "invariant 3",
        _domain("members"),
        "if entry not in self._first:",
        "if change.users:",
    ),
    Mutant(
        "the new owner need not be a member",
        "NEW_OWNER_NOT_MEMBER",
        _lua("change_policy"),
        "if not stay or string.byte(stay, 2) % 2 == 0 then",
        "if not stay then",
    ),
    Mutant(
        "anybody may do what the owner may",
        "contracts.md, Services",
        _commands("group_state"),
        "    if by.user != policy.owner:\n        raise PermissionDenied\n",
        "",
    ),
    Mutant(
        "the floor moves down",
        "decision: both points only move up",
        _lua("raise_floor"),
        "local moves = wanted > floor",
        "local moves = wanted ~= floor",
    ),
    Mutant(
        "the own clear point moves down",
        "decision: both points only move up",
        _lua("clear_own"),
        "if wanted > clear then",
        "if wanted ~= clear then",
    ),
    Mutant(
        "a leaver's clear point is not clamped to the own upper bound",
        "decision: own clear",
        _lua("clear_own"),
        "if left == 0 then upper = head end",
        "upper = head",
    ),
)

SENDS: Final = (
    Mutant(
        "who was a member once may send",
        "invariant 1",
        _lua("send"),
        "stays[s] = stay and byte(stay, 2) % 2 == 1 and sub(stay, 3, 5)",
        "stays[s] = stay and sub(stay, 3, 5)",
    ),
    Mutant(
        "a frozen group takes messages",
        "GROUP_FROZEN",
        _lua("send"),
        "elseif frozen then",
        "elseif frozen and n < 0 then",
    ),
    Mutant(
        "the expected version is not compared",
        "invariant 1",
        _lua("send"),
        "elseif expected > 0 and expected ~= (version or 1) then",
        "elseif expected < 0 then",
    ),
    Mutant(
        "a refused send takes a seq",
        "invariant 1",
        _lua("send"),
        "local head = call('INCRBY', msgcseq, count) - count",
        "local head = call('INCRBY', msgcseq, n) - count",
    ),
    Mutant(
        "the first answer of a send is not kept",
        "invariant 8",
        _lua("send"),
        "    call('HSET', current, unpack(entries, 1, e))",
        "    e = 0",
    ),
    Mutant(
        "the content behind an id of a send is not compared",
        "contracts.md, Idempotency",
        _lua("send"),
        "if sub(entry, 1, 8) == args[digests + i - 1] then",
        "if entry then",
    ),
    Mutant(
        "the content behind an id of a change is not compared",
        "contracts.md, Idempotency",
        f"{WRITER}/backends/redis/membership.py",
        "if entry[:_DIGEST] != key.digest:",
        "if not key.digest:",
    ),
    Mutant(
        "a CONCERNED event counts as the one before",
        "invariant 12",
        _lua("change_members"),
        "if audience == 2 then call('HSET', grpmeta, 'cseq', seq, 'prevb', prev) end",
        "",
    ),
)

READS: Final = (
    Mutant(
        "the own clear point is forgotten by GetMessages",
        "invariant 6",
        _commands("history"),
        "wanted = sorted({seq for seq in seqs if seq in visible})",
        "person = (await readable(self._membership, actor, conversation))[1]._replace(own_clear=0)\n"
        "        visible = visible_range(person, facts.line)\n"
        "        wanted = sorted({seq for seq in seqs if seq in visible})",
    ),
    Mutant(
        "the own clear point is forgotten by unread",
        "invariant 7",
        _domain("visible"),
        "max(min(read, upper), newest.joined_at, person.own_clear, line.floor)",
        "max(min(read, upper), newest.joined_at, line.floor)",
    ),
    Mutant(
        "the floor is forgotten by unread",
        "invariant 7",
        _domain("visible"),
        "max(min(read, upper), newest.joined_at, person.own_clear, line.floor)",
        "max(min(read, upper), newest.joined_at, person.own_clear)",
    ),
    Mutant(
        "a newcomer's backlog counts as unread",
        "invariant 7",
        _domain("visible"),
        "max(min(read, upper), newest.joined_at, person.own_clear, line.floor)",
        "max(min(read, upper), newest.history_from, person.own_clear, line.floor)",
    ),
    Mutant(
        "control messages count as unread",
        "invariant 7",
        _lua("count_unread"),
        "local skipped = redis.call('ZCOUNT', KEYS[2 * i - 1], first, last)",
        "local skipped = 0",
    ),
    Mutant(
        "own messages count as unread",
        "invariant 7",
        _lua("count_unread"),
        "skipped = skipped + 1",
        "skipped = skipped + 0",
    ),
    Mutant(
        "an own message is found across two senders of the column",
        "invariant 7",
        _lua("count_unread"),
        "if at % 3 == 1 then",
        "if at > 0 then",
    ),
    Mutant(
        "who was revoked has unread messages",
        "invariant 7",
        _domain("visible"),
        "    if newest.revoked:\n        return UnreadSpan(upper, upper)\n",
        "",
    ),
    Mutant(
        "the floor is forgotten by the visible range",
        "invariant 6",
        _domain("visible"),
        "cut = max(person.own_clear, line.floor)",
        "cut = person.own_clear",
    ),
    Mutant(
        "the floor is ignored in the mailbox",
        "invariant 12",
        _commands("delivered"),
        "visible = visible_range(person, facts.line)\n        outline",
        "visible = visible_range(person, facts.line._replace(floor=0))\n        outline",
    ),
    Mutant(
        "the preview is the newest message, visible or not",
        "invariant 6",
        _commands("states"),
        "self._preview = self._visible.head if with_preview else 0",
        "self._preview = facts.head if with_preview else 0",
    ),
    Mutant(
        "a revoked stay shows what it showed before",
        "decision: leavers",
        _domain("visible"),
        "        if stay.revoked:\n            continue\n",
        "",
    ),
    Mutant(
        "who was revoked may still ask",
        "decision: leavers",
        _domain("visible"),
        "return any(not stay.revoked for stay in counting_stays(person))",
        "return bool(person.stays)",
    ),
    Mutant(
        "the chain of stays breaks at a revoked one",
        "decision: rejoining",
        _domain("visible"),
        "while first > 0 and stays[first].keeps_earlier:",
        "while first > 0 and stays[first].keeps_earlier and not stays[first].revoked:",
    ),
    Mutant(
        "all stays count, kept or not",
        "decision: rejoining",
        _domain("visible"),
        "while first > 0 and stays[first].keeps_earlier:",
        "while first > 0:",
    ),
    Mutant(
        "PullHistory filters what it has read instead of clamping the query",
        "invariant 6",
        _commands("history"),
        "seqs = visible.older(from_seq, limit + 1) if older else visible.newer(from_seq, limit + 1)",
        "start = from_seq or (facts.head if older else 1)\n"
        "        stop = max(start - limit - 1, 0) if older else min(start + limit + 1, facts.head + 1)\n"
        "        seqs = [seq for seq in range(start, stop, -1 if older else 1) if seq in visible]",
    ),
    Mutant(
        "earliest lies behind the leave",
        "invariant 9",
        _domain("visible"),
        "return min(earliest, newest.left_at) if newest.left_at else earliest",
        "return earliest",
    ),
    Mutant(
        "a leaver sees the list of members",
        "decision: leaving twice",
        _commands("members"),
        "if facts is None or facts.person is None or not facts.person.present:",
        "if facts is None or facts.person is None:",
    ),
    Mutant(
        "a read cursor moves back",
        "invariant 7",
        f"{SESSION}/lua/advance_cursors.lua",
        "forward = generation > old_generation or (generation == old_generation and seq > old_seq)",
        "forward = generation >= old_generation",
    ),
    Mutant(
        "a read cursor goes beyond what the person may have read",
        "invariant 7",
        f"{SESSION}/commands/mark_read.py",
        "cursor = Cursor(state.generation, wanted).clamped(state.upper_seq)",
        "cursor = Cursor(state.generation, wanted)",
    ),
    Mutant(
        "the total counts conversations that the person has left",
        "invariant 7",
        f"{SESSION}/commands/person_conversations.py",
        "elif entry.state.state is MemberState.MEMBER:",
        "else:",
    ),
)

AUDIENCES: Final = (
    Mutant(
        "every event is BROADCAST",
        "invariant 4",
        _domain("changes"),
        "return Audience.BROADCAST if count <= bound else Audience.CONCERNED",
        "return Audience.BROADCAST",
    ),
    Mutant(
        "a CONCERNED event is delivered to all",
        "invariant 4",
        _domain("delivery"),
        "        if event.audience is Audience.BROADCAST and not concerned:\n",
        "        if not concerned:\n",
    ),
    Mutant(
        "the leaver does not receive the own event",
        "decision: leaver and L",
        _domain("visible"),
        "last = min(stay.left_at or line.head, line.head)\n        if stay.joined_at",
        "last = _upper(stay, line)\n        if stay.joined_at",
    ),
    Mutant(
        "the leaver receives what comes after the own event",
        "decision: leaver and L",
        _domain("visible"),
        "last = min(stay.left_at or line.head, line.head)\n        if stay.joined_at",
        "last = line.head\n        if stay.joined_at",
    ),
    Mutant(
        "the own event comes without its body where it is not visible",
        "invariant 12",
        _domain("delivery"),
        "yield Stretch(event.seq, event.seq, readable=True)",
        "yield Stretch(event.seq, event.seq, readable=event.seq in visible)",
    ),
    Mutant(
        "an explanation calls delivered what only those concerned received",
        "invariant 4",
        _domain("explain"),
        "    if event is not None and event.audience is Audience.CONCERNED and event.version not in person.versions:\n"
        "        return False\n",
        "",
    ),
)

CONSUMERS: Final = (
    Mutant(
        "who has lost a partition writes there all the same",
        "storage.md: fenced by the checkpoint",
        _session("lua/project_entries.lua"),
        "  if stored ~= ARGV[2] then\n",
        "  if false then\n",
    ),
    Mutant(
        "a batch's checkpoint moves with its first call",
        "invariant 10",
        _session("commands/projection.py"),
        "to if start == starts[-1] else None",
        "to",
    ),
    Mutant(
        "what is new through the low-latency lane is not registered",
        "storage.md: whichever lane comes first registers",
        _session("lua/project_entries.lua"),
        "sub(packed, 25, 40)) == 1 then",
        "sub(packed, 25, 40)) == 1 and partition ~= '' then",
    ),
    Mutant(
        "what is known is registered again",
        "storage.md: registered exactly once",
        _session("lua/project_entries.lua"),
        "sub(packed, 25, 40)) == 1 then",
        "sub(packed, 25, 40)) then",
    ),
    Mutant(
        "a late message moves a conversation down",
        "storage.md: ZADD GT",
        _session("lua/project_entries.lua"),
        "KEYS[3 + i], 'GT', ARGV[4 + 2 * i]",
        "KEYS[3 + i], ARGV[4 + 2 * i]",
    ),
    Mutant(
        "progress is stored by one who has lost the partition",
        "storage.md: a partition's progress",
        _session("lua/settle_progress.lua"),
        "if (stored[i] or '') == ARGV[count + i] then",
        "if true then",
    ),
    Mutant(
        "progress runs ahead of a batch that is not the last one",
        "storage.md: a partition's progress",
        _session("commands/consume.py"),
        "progress_ms = max(newest.ms, read_at_ms if at_the_end else 0)",
        "progress_ms = max(newest.ms, read_at_ms)",
    ),
    Mutant(
        "a consumer goes on behind what has left the log meanwhile",
        "storage.md: checkpoints",
        _session("commands/locating.py"),
        "    if not starts:\n        return []\n",
        "    return []\n",
    ),
    Mutant(
        "the registrar pops as many heads as it wrote, whatever they are",
        "storage.md: pops only heads equal to what it wrote",
        _session("lua/pop_pending.lua"),
        "while same < #ARGV and heads[same + 1] == ARGV[same + 1] do",
        "while same < #ARGV and heads[same + 1] do",
    ),
    Mutant(
        "the registrar pops first and writes then",
        "storage.md: the registrar",
        _session("commands/register.py"),
        "        await self._sets.register(entries)\n"
        "        self._metrics.conversation_state_written.inc(len(entries))\n"
        "        return await self._store.pop_pending(entries)\n",
        "        popped = await self._store.pop_pending(entries)\n"
        "        await self._sets.register(entries)\n"
        "        return popped\n",
    ),
    Mutant(
        "a second registration overwrites the first one",
        "storage.md: first_seen_at",
        _session("backends/redis_people.py"),
        '("HSETNX", keys.authority,',
        '("HSET", keys.authority,',
    ),
    Mutant(
        "the membership log is trimmed before it is registered",
        "storage.md: the registrar",
        _session("commands/memlog.py"),
        "        for start in range(0, len(people), ENTRIES_PER_CALL):\n"
        "            await self._sets.register(people[start : start + ENTRIES_PER_CALL])\n"
        "        if through:\n"
        "            await self._members.trim(through)\n",
        "        if through:\n"
        "            await self._members.trim(through)\n"
        "        for start in range(0, len(people), ENTRIES_PER_CALL):\n"
        "            await self._sets.register(people[start : start + ENTRIES_PER_CALL])\n",
    ),
    Mutant(
        "the membership log is trimmed beyond what was registered",
        "storage.md: the registrar",
        _session("backends/redis_memlog.py"),
        '("XTRIM", self._keys[partition], "MINID", str(position.after()))',
        '("XTRIM", self._keys[partition], "MAXLEN", 0 if position else 1)',
    ),
    Mutant(
        "after a gap the epoch rises before the membership log is registered",
        "storage.md: checkpoints, at start",
        _session("commands/projection_lane.py"),
        "        await self._memlog.drain({gap.partition for gap in gaps})\n"
        "        await self._projector.raise_epoch({gap.place for gap in gaps})\n",
        "        await self._projector.raise_epoch({gap.place for gap in gaps})\n"
        "        await self._memlog.drain({gap.partition for gap in gaps})\n",
    ),
    Mutant(
        "a gap is passed over without a new epoch",
        "storage.md: checkpoints, at start",
        _session("commands/projection_lane.py"),
        "        await self._projector.raise_epoch({gap.place for gap in gaps})\n",
        "",
    ),
    Mutant(
        "a rebuild reads the set before what waits is registered",
        "storage.md: the person whose epoch mark is old",
        _session("commands/rebuild.py"),
        "        await self._pending[self._topology.instance_of(self._topology.person_bucket(tenant, user))].flush()\n",
        "",
    ),
    Mutant(
        "a rebuild marks the epoch in which it ends",
        "storage.md: the person whose epoch mark is old",
        _session("commands/rebuild.py"),
        "        await self._lists.mark(tenant, user, epoch)\n",
        "        await self._lists.mark(tenant, user, (await self._lists.epoch(tenant, user))[0])\n",
    ),
)

PUSHES: Final = (
    Mutant(
        "a push checkpoint moves before the sink has taken the batch",
        "invariant 10",
        _session("commands/push/lane.py"),
        "        await self._deliver(gathered)\n        await self._move(partition, to)\n",
        "        await self._move(partition, to)\n        await self._deliver(gathered)\n",
    ),
    Mutant(
        "the sender of a message is told of it",
        "docs/push.md: who is told",
        _session("commands/push/gathering.py"),
        "if one.message.sender != user]",
        "]",
    ),
    Mutant(
        "a body goes along without a state that shows it",
        "invariant 6",
        _session("commands/push/deciding.py"),
        "if standing is None or self._body_max_bytes == 0:",
        "if self._body_max_bytes == 0:",
    ),
    Mutant(
        "who has read a message is told of it",
        "docs/push.md: who is told",
        _session("domain/push.py"),
        "marks.read >= message.place",
        "marks.read > message.place",
    ),
)

MUTANTS: Final = (*CHANGES, *SENDS, *READS, *AUDIENCES, *CONSUMERS, *PUSHES)
