"""The play adds up to the chapter's numbers."""

from __future__ import annotations

from itertools import accumulate

from qim_devkit.demo.chapter import BEN, CARA, CHAPTER, SCRIPT, Stretch


def test_messages_and_changes_give_the_chapters_seqs() -> None:
    *changes, head = accumulate(stretch.messages + 1 for stretch in SCRIPT.stretches)
    assert changes == [CHAPTER.ben_leaves, CHAPTER.cara_joins, CHAPTER.ben_returns]
    assert head - 1 == CHAPTER.head


def test_ana_ben_and_the_hikers_are_the_members_at_first_and_cara_and_ben_make_it_500() -> None:
    assert len({*SCRIPT.hikers, "Ana", BEN}) == CHAPTER.members_at_first
    assert CHAPTER.members_at_first - 1 + 1 + 1 == CHAPTER.members_at_last


def test_nobody_writes_while_not_in_the_group() -> None:
    assert BEN not in {*SCRIPT.ben_gone.senders(), *SCRIPT.cara_there.senders()}
    assert CARA not in {*SCRIPT.together.senders(), *SCRIPT.ben_gone.senders()}


def test_a_stretch_is_opened_by_one_person_and_goes_round() -> None:
    stretch = Stretch(5, "ana", ("ben", "cara"))
    assert list(stretch.senders()) == ["ana", "ben", "cara", "ben", "cara"]
    assert [stretch.unread_by(name) for name in ("ana", "ben", "dora")] == [4, 3, 5]
