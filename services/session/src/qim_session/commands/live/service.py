"""All live streams of a process, and the workers behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from qim_common.telemetry.metrics import SessionMetrics
from qim_session.commands.live.acknowledging import Acknowledging
from qim_session.commands.live.catch_up import CatchUp
from qim_session.commands.live.connected import Connected
from qim_session.commands.live.events import EventEncoder
from qim_session.commands.live.fan_out import FanOut
from qim_session.commands.live.finding import Finding
from qim_session.commands.live.signals import SignalTail
from qim_session.commands.live.stream import LiveLimits, LiveParts, LiveStream
from qim_session.commands.live.tail import LiveTail
from qim_session.commands.live.tails import LiveTails
from qim_session.commands.live.tokens import ResumeTokens
from qim_session.commands.mailbox import Mailbox
from qim_session.commands.progress import ProgressReader
from qim_session.commands.rebuild import Rebuild
from qim_session.domain.membership import MembersCache
from qim_session.storage.conversations import Conversations, MembershipSource
from qim_session.storage.cursors import Cursors
from qim_session.storage.dispatch import DispatchLog
from qim_session.storage.live import InstanceClock, RecentConversations, SignalLog

MEMBERS_IN_MEMORY: Final = 500_000
"""People in all groups that the tails follow together, about 100 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStores:
    """What live streams read and write.

    Attributes:
        logs: of each commit instance, in their order, its dispatch log (on a connection of its own) and its clock.
        signals: of each session instance.
    """

    logs: Sequence[tuple[DispatchLog, InstanceClock]]
    signals: Sequence[SignalLog]
    recent: RecentConversations
    cursors: Cursors
    source: MembershipSource
    conversations: Conversations


class LiveService:
    """Opens streams. Run each of `workers` in a task; cancel them to stop."""

    def __init__(
        self,
        stores: LiveStores,
        *,
        mailbox: Mailbox,
        rebuild: Rebuild,
        progress: ProgressReader,
        tokens: ResumeTokens,
        encoder: EventEncoder,
        metrics: SessionMetrics,
        limits: LiveLimits,
    ) -> None:
        self._mailbox = mailbox
        self._cursors = stores.cursors
        self._encoder = encoder
        self._connected = Connected()
        self._tails = LiveTails()
        catch_up = CatchUp(
            lists=stores.recent,
            mailbox=mailbox,
            rebuild=rebuild,
            progress=progress,
            tails=self._tails,
            encoder=encoder,
        )
        self._parts = LiveParts(self._connected, catch_up, self._tails, tokens, encoder, metrics, limits)
        tails = []
        for instance, (log, clock) in enumerate(stores.logs):
            # A conversation is in one instance's partitions, so that each tail has a memory of its own.
            members = MembersCache(MEMBERS_IN_MEMORY // len(stores.logs))
            tails.append(
                LiveTail(
                    log,
                    clock,
                    self._connected,
                    FanOut(self._connected, members, encoder, metrics),
                    Finding(stores.source, stores.conversations, members, encoder),
                    metrics,
                    instance=instance,
                    on_gap=self._catch_up_again,
                    on_progress=self._tails.progressed,
                )
            )
        self._tails.use(tails)
        signals = [SignalTail(log, self._connected, encoder) for log in stores.signals]
        self.workers: Sequence[LiveTail | SignalTail] = [*tails, *signals]

    def open(self) -> LiveStream:
        """A new stream."""
        return LiveStream(self._parts, Acknowledging(self._mailbox, self._cursors, self._encoder))

    def _catch_up_again(self, since_ms: int) -> None:
        since_ms = min(since_ms, self._tails.settled_ms)
        for attachment in self._connected.everybody():
            attachment.stream.catch_up_again(attachment, since_ms)
