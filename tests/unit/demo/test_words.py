"""The sentences say what the answers say, and follow them when they change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qim_devkit.demo import words
from qim_devkit.demo.chapter import ALL_STAYS, HUNDRED_BEFORE, SINCE_JOIN, Policy
from qim_devkit.demo.sights import Played, in_or_out

PlayOf = Callable[[Policy], Played]


def test_the_changes_are_told_with_their_seqs_and_counts(play_of: PlayOf) -> None:
    text = words.about_changes(play_of(SINCE_JOIN))
    for number in ("499 people", "4,816", "498", "PERMISSION_DENIED", "4,817", "4,837", "4,880", "(500)", "4,900"):
        assert number in text


def test_since_the_join(play_of: PlayOf) -> None:
    play = play_of(SINCE_JOIN)
    assert "only the newest stay counts, so 4,880 to 4,900" in words.about(play.ben)
    assert "4,815 of them come without their bodies" in words.about(play.ben)
    assert "the 4,836 before it stay hidden" in words.about(play.cara)
    assert "The owner, in the group from the start" in words.about(play.ana)
    assert "Left with 4,816, so the stay shows 1 to 4,815" in words.about(play.ben_away)


def test_a_hundred_before_opens_part_of_the_week_away_to_who_comes_back(play_of: PlayOf) -> None:
    play = play_of(HUNDRED_BEFORE)
    assert "the setting opens the 100 before it, so 4,737 comes first" in words.about(play.cara)
    assert "neither delivered nor unread" in words.about(play.cara)
    assert "the 100 opened hold 64 from the week away" in words.about(play.ben)


def test_all_stays_hide_the_stretch_in_between(play_of: PlayOf) -> None:
    play = play_of(ALL_STAYS)
    assert "1 to 4,815 and 4,880 to 4,900. The 64 in between (4,816 to 4,879) stay hidden" in words.about(play.ben)
    assert "bodies" not in words.about(play.ben)


def test_the_plain_table(play_of: PlayOf) -> None:
    ana, away, ben, cara = (words.about_table(in_or_out(sight)) for sight in play_of(ALL_STAYS).sights)
    assert "rightly" in ana
    assert "none of the 4,815" in away
    assert "64 messages that should be hidden (4,816 to 4,879)" in ben
    assert "4,836 messages that should be hidden (1 to 4,836)" in cara


def test_the_words_follow_the_answers_and_not_the_chapter(play_of: PlayOf) -> None:
    cara = play_of(SINCE_JOIN).cara
    later = replace(cara, stays=(replace(cara.stays[0], joined_at=4_839, history_from=4_839),))
    assert "Joined with 4,840" in words.about(later)
