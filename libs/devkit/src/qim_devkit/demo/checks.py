"""Compares what the services answered with what the chapter says. Pure.

The chapter's own numbers come from `Chapter`. What it leaves open (what a returning person reads under each setting,
what the mailbox holds, what counts as unread) follows from design.md's decisions and invariants 4 to 9 and 12.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qim_client import MemberState
from qim_common.errors import Reason
from qim_devkit.demo.chapter import ALL_STAYS, ANA, BEN, CARA, HUNDRED_BEFORE, SCRIPT, SINCE_JOIN, Chapter, Policy
from qim_devkit.demo.seqs import Seqs
from qim_devkit.demo.sights import Played, Sight, in_or_out

IN_OR_OUT = "In or out"


@dataclass(frozen=True, slots=True)
class Check:
    """One number, or one set of seqs: what was expected, and what was found.

    `section` is the picture it belongs to; `chapter` says that the chapter itself names the number.
    """

    section: str
    what: str
    expected: str
    found: str
    chapter: bool = False

    @property
    def agrees(self) -> bool:
        """Whether they are the same."""
        return self.expected == self.found


def check_all(played: Sequence[Played], chapter: Chapter) -> list[Check]:
    """Every number that the demo shows, in the order in which it shows them."""
    checks: list[Check] = []
    for play in played:
        if play.policy is ALL_STAYS:
            checks += _table(play, chapter)
    for play in played:
        checks += _changes(play, chapter)
        expected = _ranges(play.policy, chapter)
        for sight in play.sights:
            checks += _sight(play.policy.title, sight, expected[sight.label], chapter)
        checks += _hidden(play, chapter)
    return checks


def _table(play: Played, chapter: Chapter) -> Iterator[Check]:
    """The plain table, measured against the chapter's own answer."""
    away, ben, cara = in_or_out(play.ben_away), in_or_out(play.ben), in_or_out(play.cara)
    yield _number(IN_OR_OUT, "messages that Ben sees, but should not", chapter.hidden_from_ben, len(ben.wrong), True)
    yield _number(IN_OR_OUT, "messages that Cara sees, but should not", chapter.hidden_from_cara, len(cara.wrong), True)
    yield _number(IN_OR_OUT, "messages that Ben, away, cannot fetch", chapter.ben_could_read, len(away.missing), True)
    yield _number(IN_OR_OUT, "messages that Ben, away, gets", 0, len(away.returned))
    yield _number(IN_OR_OUT, "messages that Ana sees and should not", 0, len(in_or_out(play.ana).wrong))
    yield _seqs(IN_OR_OUT, "what Ben sees and should not", _while_away(chapter), ben.wrong)
    for sight in (ben, cara):
        yield _number(IN_OR_OUT, f"messages returned to {sight.sight.name}", chapter.head, len(sight.returned))
    yield _number(IN_OR_OUT, "messages returned to Ana", chapter.head, len(in_or_out(play.ana).returned))


def _changes(play: Played, chapter: Chapter) -> Iterator[Check]:
    section = play.policy.title
    first, last = chapter.members_at_first, chapter.members_at_last
    yield _number(section, "the seq that Ben's leave took", chapter.ben_leaves, play.left, True)
    yield _number(section, "the seq that Cara's join took", chapter.cara_joins, play.joined, True)
    yield _number(section, "the seq that Ben's return took", chapter.ben_returns, play.returned)
    yield _number(section, "the head", chapter.head, play.head, True)
    yield _number(section, "members in the end", last, play.members[-1], True)
    wanted = (first, first - 1, first, first + 1)
    yield Check(section, "members after each change", f"{wanted}", f"{play.members}")
    yield Check(section, "what Ben's message got after he had left", Reason.PERMISSION_DENIED, play.refusal)
    yield _number(section, "the seq after the refused message", chapter.ben_leaves + 1, play.after_refusal, True)


@dataclass(frozen=True, slots=True)
class _Expected:
    visible: Seqs
    delivered: Seqs
    unread: int
    state: MemberState = MemberState.MEMBER


def _ranges(policy: Policy, chapter: Chapter) -> dict[str, _Expected]:
    """What each row of the picture shows."""
    before = Seqs.between(1, chapter.ben_leaves - 1)
    back = Seqs.between(chapter.ben_returns, chapter.head)
    with_leave = Seqs.between(1, chapter.ben_leaves)
    since_join = Seqs.between(chapter.cara_joins, chapter.head)
    cara, ben = since_join, back
    if policy is HUNDRED_BEFORE:
        cara = Seqs.between(chapter.first_for_cara_with_setting, chapter.head)
        ben = Seqs.between(chapter.ben_returns - chapter.newcomers_see, chapter.head)
    elif policy is ALL_STAYS:
        ben = before | back
    everything = Seqs.between(1, chapter.head)
    return {
        ANA: _Expected(everything, everything, sum(part.unread_by(ANA) for part in SCRIPT.stretches)),
        "Ben, away": _Expected(before, with_leave, SCRIPT.together.unread_by(BEN), MemberState.LEFT),
        "Ben, back": _Expected(ben, with_leave | back, SCRIPT.ben_back.unread_by(BEN)),
        CARA: _Expected(cara, since_join, SCRIPT.cara_there.unread_by(CARA) + SCRIPT.ben_back.unread_by(CARA)),
    }


def _sight(section: str, sight: Sight, expected: _Expected, chapter: Chapter) -> Iterator[Check]:
    who = sight.label
    yield _seqs(section, f"{who}: may read", expected.visible, sight.visible)
    yield _seqs(section, f"{who}: paging through the history returns", expected.visible, sight.history)
    yield _number(section, f"{who}: first readable seq", expected.visible.ranges[0].first, sight.earliest)
    yield _seqs(section, f"{who}: delivered", expected.delivered, sight.delivered.seqs)
    own_leave = Seqs.between(chapter.ben_leaves, chapter.ben_leaves) if sight.name == BEN else Seqs()
    withheld = expected.delivered - expected.visible - own_leave
    yield _seqs(section, f"{who}: delivered, no longer readable", withheld, sight.delivered.withheld)
    yield _number(section, f"{who}: unread", expected.unread, sight.unread)
    yield Check(section, f"{who}: is", expected.state.name, sight.state.name)
    yield Check(section, f"{who}: owns the group", str(sight.name == ANA), str(sight.owner))


def _hidden(play: Played, chapter: Chapter) -> Iterator[Check]:
    """What the chapter counts, in the groups of which it counts it."""
    section = play.policy.title
    everything = Seqs.between(1, play.head)
    yield _number(
        section, "messages that Ben, away, can fetch", chapter.ben_could_read, len(play.ben_away.history), True
    )
    yield _seqs(section, "what Ben missed", _while_away(chapter), play.ben.away)
    hidden = everything - play.cara.history
    if play.policy is HUNDRED_BEFORE:
        yield _number(section, "Cara's first visible", chapter.first_for_cara_with_setting, play.cara.earliest, True)
        moved = len(play.cara.history) - len(play.cara.delivered.seqs)
        yield _number(section, "how far Cara's start moved back", chapter.newcomers_see, moved, True)
    else:
        yield _number(section, "messages hidden from Cara", chapter.hidden_from_cara, len(hidden), True)
        yield _number(section, "Cara's first visible", chapter.cara_joins, play.cara.earliest, True)
    if play.policy is ALL_STAYS:
        hidden = everything - play.ben.history
        yield _number(section, "messages hidden from Ben", chapter.hidden_from_ben, len(hidden), True)
        yield _seqs(section, "what is hidden from Ben", _while_away(chapter), hidden)
    if play.policy is SINCE_JOIN:
        yield _number(section, "Ben's first visible", chapter.ben_returns, play.ben.earliest)


def _while_away(chapter: Chapter) -> Seqs:
    return Seqs.between(chapter.ben_leaves, chapter.ben_returns - 1)


def _number(section: str, what: str, expected: int, found: int, chapter: bool = False) -> Check:
    return Check(section, what, f"{expected:,}", f"{found:,}", chapter)


def _seqs(section: str, what: str, expected: Seqs, found: Seqs) -> Check:
    return Check(section, what, str(expected), str(found))
