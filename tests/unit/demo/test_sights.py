"""What is worked out from answers: the time away, and what a plain in-or-out table returns."""

from __future__ import annotations

from collections.abc import Callable

from qim_devkit.demo.chapter import ALL_STAYS, Policy
from qim_devkit.demo.seqs import NO_SEQS, Seqs
from qim_devkit.demo.sights import Played, in_or_out

PlayOf = Callable[[Policy], Played]
WEEK_AWAY = Seqs.between(4_816, 4_879)


def test_the_time_away_lies_between_the_stays_or_after_the_last_one(play_of: PlayOf) -> None:
    play = play_of(ALL_STAYS)
    assert play.ben.away == WEEK_AWAY
    assert play.ben_away.away == WEEK_AWAY
    assert play.cara.away == NO_SEQS


def test_the_plain_table_shows_members_everything_and_others_nothing(play_of: PlayOf) -> None:
    play = play_of(ALL_STAYS)
    ana, away, ben, cara = map(in_or_out, play.sights)
    assert ana.returned == ben.returned == cara.returned == Seqs.between(1, 4_900)
    assert (ana.wrong, ana.missing) == (NO_SEQS, NO_SEQS)
    assert (ben.wrong, ben.missing) == (WEEK_AWAY, NO_SEQS)
    assert (cara.wrong, cara.missing) == (Seqs.between(1, 4_836), NO_SEQS)
    assert (away.returned, away.missing) == (NO_SEQS, Seqs.between(1, 4_815))
