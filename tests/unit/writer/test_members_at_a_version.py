"""The members at a version, against an oracle that keeps every version (design.md invariant 3)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from qim_common.ids import MembershipOp, UserId
from qim_writer.domain.members import Change, Undo

PEOPLE = [bytes((shard,)) * 2 + bytes((number,)) * 16 for shard in (1, 2) for number in range(6)]
LAST = b"\xff" * 18


@dataclass
class Group:
    """A group that remembers the members at each of its versions, from 1."""

    versions: list[frozenset[bytes]] = field(default_factory=list)
    changes: list[tuple[Change, tuple[bytes, ...]]] = field(default_factory=list)

    @property
    def version(self) -> int:
        return len(self.versions)

    def change(self, op: MembershipOp, named: set[bytes]) -> None:
        """Carries out what is not in effect already, as a plan does."""
        now = self.versions[-1]
        people = tuple(sorted(named - now if op is MembershipOp.JOIN else named & now))
        if people:
            self.versions.append(now | set(people) if op is MembershipOp.JOIN else now - set(people))
            users = tuple(UserId(entry[2:]) for entry in people)
            self.changes.append((Change(self.version, op, 0, 0, b"", users), people))

    def after(self, version: int) -> list[tuple[Change, tuple[bytes, ...]]]:
        return [(change, people) for change, people in self.changes if change.version > version]

    def page(self, after: bytes, size: int) -> list[bytes]:
        return sorted(entry for entry in self.versions[-1] if entry > after)[:size]


groups = st.builds(lambda people: Group([frozenset(people)]), st.sets(st.sampled_from(PEOPLE)))
changes = st.tuples(st.sampled_from(MembershipOp), st.sets(st.sampled_from(PEOPLE), min_size=1, max_size=4))


@given(
    groups,
    st.lists(changes, max_size=12),
    st.integers(0, 11),
    st.integers(1, 4),
    st.lists(st.lists(changes, max_size=3), max_size=12),
)
def test_pages_give_the_members_at_a_version_while_people_come_and_go(
    group: Group,
    before: list[tuple[MembershipOp, set[bytes]]],
    back: int,
    size: int,
    between: list[list[tuple[MembershipOp, set[bytes]]]],
) -> None:
    for op, people in before:
        group.change(op, people)
    version = max(1, group.version - back)
    undo = Undo(version)
    found: list[bytes] = []
    after, done = b"", False
    while not done:
        page = group.page(after, size)
        undo.add(group.after(undo.seen))
        undo.seen = group.version
        done = len(page) < size
        upto = LAST if done else page[-1]
        found += undo.page(page, after, upto)
        after = upto
        for op, people in between.pop() if between else ():
            group.change(op, people)
    assert found == sorted(group.versions[version - 1])


def test_changes_are_noted_up_to_the_last_one_seen() -> None:
    group = Group([frozenset(PEOPLE[:2])])
    group.change(MembershipOp.JOIN, {PEOPLE[3]})
    group.change(MembershipOp.LEAVE, {PEOPLE[0]})
    undo = Undo(1)
    undo.add(group.after(1))
    assert undo.seen == 3
    assert list(undo.page(sorted(group.versions[-1]), b"", LAST)) == PEOPLE[:2]


def test_the_first_change_after_the_version_decides_not_the_last() -> None:
    group = Group([frozenset(PEOPLE[:1])])
    for op in (MembershipOp.REMOVE, MembershipOp.JOIN, MembershipOp.LEAVE):
        group.change(op, {PEOPLE[0]})
    for version, inside in ((1, True), (2, False), (3, True), (4, False)):
        undo = Undo(version)
        undo.add(group.after(version))
        assert list(undo.page(sorted(group.versions[-1]), b"", LAST)) == (PEOPLE[:1] if inside else [])
