"""Says in words what each person sees, and why: from the answers alone. Pure."""

from __future__ import annotations

from qim_devkit.demo.seqs import Seqs
from qim_devkit.demo.sights import Played, Sight, TableSight


def about_changes(play: Played) -> str:
    """What the three changes did to the line."""
    first, without_ben, with_cara, last = play.members
    return (
        f"{first} people at first, Ana the owner and Ben among them. Ben's leave took seq {play.left:,} and left "
        f"{without_ben}; what he tried to send then was refused ({play.refusal}) and took no seq, so the next message "
        f"is {play.after_refusal:,}. Cara's join took {play.joined:,} ({with_cara} people), Ben's return "
        f"{play.returned:,} ({last}). The head is {play.head:,}. Nobody has marked anything as read: unread "
        "counts what others wrote since one's newest join, and no changes."
    )


def about_table(table: TableSight) -> str:
    """What the plain in-or-out table does to one person."""
    who = table.sight.name
    if table.missing:
        return f"Has no row now, so a new phone gets none of the {_count(table.missing)} from while {who} was in."
    if not table.wrong:
        return "Was there from the start: everything, and rightly."
    if table.sight.away & table.wrong:
        return f"Reads the week away too: {_count(table.wrong)} messages that should be hidden ({table.wrong})."
    return f"Scrolls back to message 1 at once: {_count(table.wrong)} messages that should be hidden ({table.wrong})."


def about(sight: Sight) -> str:
    """What one person reads and got under a policy of qim, with the reasons."""
    return f"{_reads(sight)} {_received(sight)}"


def _reads(sight: Sight) -> str:
    stay = sight.newest
    if not sight.present:
        return f"Left with {stay.left_at:,}, so the stay shows {sight.visible}, also on a new phone."
    if not stay.joined_at:
        return (
            f"{'The owner, in' if sight.owner else 'In'} the group from the start: reads everything, the changes too."
        )
    came = f"{stay.joined_at + 1:,}"
    back = stay.joined_at - stay.history_from
    if len(sight.stays) == 1:
        if back:
            return f"Joined with {came}; the setting opens the {back:,} before it, so {sight.earliest:,} comes first."
        return f"Joined with {came}, which comes first: the {stay.joined_at:,} before it stay hidden."
    if stay.keeps_earlier:
        hidden = Seqs.between(1, sight.head) - sight.visible
        return f"Both stays count: {sight.visible}. The {_count(hidden)} in between ({hidden}) stay hidden."
    if back:
        return (
            f"Came back with {came}, as a newcomer like any other: {sight.earliest:,} comes first, and the {back:,} "
            f"opened hold {_count(sight.away & sight.visible)} from the week away. The first stay does not count."
        )
    return f"Came back with {came}; only the newest stay counts, so {sight.visible} is all there is to read."


def _received(sight: Sight) -> str:
    got = sight.delivered
    if not sight.present:
        return f"The mailbox ends with the own leave, {sight.newest.left_at:,}."
    older = sight.visible - got.seqs
    if len(sight.stays) > 1:
        text = f"Delivered stays delivered: {got.seqs}"
        return f"{text}; {_count(got.withheld)} of them come without their bodies now." if got.withheld else f"{text}."
    if older:
        return f"Those {_count(older)} are neither delivered nor unread."
    return f"Delivered is the same, {got.seqs}." if got.seqs == sight.visible else f"Delivered: {got.seqs}."


def _count(seqs: Seqs) -> str:
    return f"{len(seqs):,}"
