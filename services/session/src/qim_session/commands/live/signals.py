"""Read marks and flags of people's other devices: the streams `usig`, read by every replica (storage.md, "Session")."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from qim_common.backoff import Backoff
from qim_common.errors import QimError
from qim_common.positions import Position
from qim_common.redis import StartRefused
from qim_session.commands.live.attachment import Attachment
from qim_session.commands.live.connected import Connected
from qim_session.commands.live.events import EventEncoder, WireEvent
from qim_session.commands.live.stream import LiveStream
from qim_session.domain.signals import Signal
from qim_session.storage.live import SignalLog

_log = logging.getLogger(__name__)

SIGNALS_PER_READ: Final = 1_000
BLOCK_MS: Final = 2_000


class SignalTail:
    """Tells attachments what their person's other devices did. Run `run` in a task; cancel it to stop."""

    def __init__(self, log: SignalLog, connected: Connected, encoder: EventEncoder) -> None:
        self._signals = log
        self._connected = connected
        self._encoder = encoder

    async def run(self) -> None:
        """Read until cancelled. Where signals were lost, everybody is told that something may have changed."""
        backoff = Backoff()
        at: Position | None = None
        while True:
            try:
                if at is None:
                    at = await self._signals.end()
                read = await self._signals.read(at, count=SIGNALS_PER_READ, block_ms=BLOCK_MS)
                at = read.upto
                if read.lost:
                    self._tell_everybody()
                for signal in read.signals:
                    self._tell(signal)
            except (QimError, StartRefused) as error:
                _log.warning("signals of other devices cannot be read", extra={"error": str(error)})
            except Exception:  # noqa: BLE001  whatever it is, it is read again
                _log.exception("reading signals failed")
                at = None
            else:
                backoff.reset()
                continue
            await backoff.sleep()

    def _tell(self, signal: Signal) -> None:
        others = [
            attachment
            for attachment in self._connected.of_person(signal.tenant, signal.user)
            if attachment.actor.device != signal.device
        ]
        if others:
            _by_stream(self._encoder.signal(signal), others)

    def _tell_everybody(self) -> None:
        _by_stream(self._encoder.states_changed(), list(self._connected.everybody()))


def _by_stream(event: WireEvent, attachments: Sequence[Attachment]) -> None:
    by_stream: dict[LiveStream, list[Attachment]] = {}
    for attachment in attachments:
        by_stream.setdefault(attachment.stream, []).append(attachment)
    for stream, some in by_stream.items():
        stream.tell(event, some)
