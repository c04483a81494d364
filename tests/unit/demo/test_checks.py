"""Right answers agree with the chapter; any other answer, and any other chapter, is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from qim_client import MemberState
from qim_devkit.demo.chapter import ALL_STAYS, CHAPTER, POLICIES
from qim_devkit.demo.checks import IN_OR_OUT, check_all
from qim_devkit.demo.seqs import NO_SEQS, Seqs
from qim_devkit.demo.sights import Delivered, Played


def wrong(plays: list[Played], chapter: Any = CHAPTER) -> list[tuple[str, str]]:
    return [(check.section, check.what) for check in check_all(plays, chapter) if not check.agrees]


def test_right_answers_agree(plays: list[Played]) -> None:
    assert wrong(plays) == []


def test_every_picture_has_checks(plays: list[Played]) -> None:
    sections = {check.section for check in check_all(plays, CHAPTER)}
    assert sections == {IN_OR_OUT, *(policy.title for policy in POLICIES)}


@pytest.mark.parametrize("name", [item.name for item in fields(CHAPTER)])
def test_every_number_of_the_chapter_is_checked(plays: list[Played], name: str) -> None:
    other = replace(CHAPTER, **{name: getattr(CHAPTER, name) - 1})
    assert wrong(plays, other)


@pytest.mark.parametrize("name", ["left", "joined", "returned", "head", "after_refusal"])
def test_another_seq_of_a_change_is_noticed(plays: list[Played], name: str) -> None:
    for number, play in enumerate(plays):
        other = replace(play, **{name: getattr(play, name) + 1})
        assert wrong([*plays[:number], other, *plays[number + 1 :]])


def test_a_message_that_was_taken_after_the_leave_is_noticed(plays: list[Played]) -> None:
    found = wrong([*plays[:2], replace(plays[2], refusal="")])
    assert found == [("All stays", "what Ben's message got after he had left")]


@pytest.mark.parametrize("person", ["ana", "ben_away", "ben", "cara"])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("visible", lambda seqs: seqs - Seqs.between(4_800, 4_800) - Seqs.between(4_890, 4_890)),
        ("history", lambda _: NO_SEQS),
        ("earliest", lambda seq: seq + 1),
        ("unread", lambda count: count + 1),
        ("owner", lambda owner: not owner),
        ("state", lambda _: MemberState.REMOVED),
        ("delivered", lambda got: Delivered(got.seqs - Seqs.between(4_900, 4_900), got.withheld | got.seqs)),
    ],
)
def test_anything_else_that_a_person_sees_is_noticed(
    plays: list[Played], person: str, name: str, change: Callable[[Any], Any]
) -> None:
    for number, play in enumerate(plays):
        sight = getattr(play, person)
        other = replace(play, **{person: replace(sight, **{name: change(getattr(sight, name))})})
        found = wrong([*plays[:number], other, *plays[number + 1 :]])
        assert any(section == play.policy.title for section, _ in found)


def test_the_contrast_is_measured_against_the_chapters_own_answer(plays: list[Played]) -> None:
    (last,) = (play for play in plays if play.policy is ALL_STAYS)
    everything = replace(last.ben, visible=Seqs.between(1, 4_900))
    found = wrong([*plays[:2], replace(last, ben=everything)])
    assert (IN_OR_OUT, "messages that Ben sees, but should not") in found
