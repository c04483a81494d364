"""Client channels over mTLS whose certificates are reloaded without a restart.

A gRPC channel cannot change its certificate, so the provider makes a new channel when the files change and swaps it in;
calls that run on the old one finish within a grace.

Names are looked up again whenever a connection goes away: a headless Service's replicas may all have changed since.
Where a look-up fails, gRPC waits longer and longer until the next one, up to two minutes, and nothing can tell it that
the name is back; so a channel that reaches nobody is replaced, too.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import grpc

from qim_common.tls import PemFiles, TlsMaterial, WatchedTls

_log = logging.getLogger(__name__)
_Stub = TypeVar("_Stub")
ChannelOptions = Sequence[tuple[str, Any]]

MAX_MESSAGE_BYTES: Final = 20 * 1024 * 1024
"""Receive and send limit of both ends for one message or frame: the largest frame of sends (256 messages with bodies of
64 KiB, 256 actors) has a little over 16 MiB."""

KEEPALIVE_MS: Final = 30_000
"""Pings of a client; servers take them no faster than `KEEPALIVE_MIN_MS`."""
KEEPALIVE_MIN_MS: Final = 10_000

LOOKUP_PAUSE_MS: Final = 1_000
"""From one look-up of a name to the next. gRPC's own 30 s would leave a client without a single address after a rolling
update that takes less."""

UNREACHABLE_SECONDS: Final = 10.0
"""The age from which a channel that reaches nobody is replaced."""

_OPTIONS: Final[ChannelOptions] = (
    ("grpc.service_config", '{"loadBalancingConfig":[{"round_robin":{}}]}'),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.dns_min_time_between_resolutions_ms", LOOKUP_PAUSE_MS),
    # A swapped channel has to shake hands with its own certificate.
    ("grpc.use_local_subchannel_pool", 1),
    # The client library retries with the same ids; a second, hidden layer would only multiply.
    ("grpc.enable_retries", 0),
    # Services call each other directly; a proxy variable in their environment is not meant for this.
    ("grpc.enable_http_proxy", 0),
)


class MtlsChannel:
    """One channel and the certificate that it was made with; `channel` is ready for stubs.

    Parameters:
        target: `host:port`, or a name that gRPC resolves to several addresses (round robin over them).
        server_name: DNS name to expect in the server's certificate instead of the target's host.
    """

    def __init__(
        self, target: str, material: TlsMaterial, *, options: ChannelOptions = (), server_name: str | None = None
    ) -> None:
        override = {"grpc.ssl_target_name_override": server_name} if server_name else {}
        self.channel = grpc.aio.secure_channel(
            target,
            grpc.ssl_channel_credentials(material.roots, material.key, material.cert),
            # Of two options with one name gRPC takes the first, so each name is given once.
            options=[*{**dict(_OPTIONS), **override, **dict(options)}.items()],
        )
        self._stubs: dict[Callable[[grpc.aio.Channel], Any], Any] = {}

    def stub(self, make: Callable[[grpc.aio.Channel], _Stub]) -> _Stub:
        """The stub of this channel, made once."""
        stub: _Stub | None = self._stubs.get(make)
        if stub is None:
            stub = self._stubs[make] = make(self.channel)
        return stub


class ChannelProvider:
    """The channel to one service, rebuilt when its certificate files change or when it reaches nobody.

    Ask for `stub` (or `channel`) at every call and never keep it: that is where either is noticed, certificates at most
    once `interval` seconds, a channel without any connection once it is `unreachable` seconds old. Streams opened on an
    older channel end when `grace` seconds have passed.

    Raises CertificateError if the files cannot be taken at first. Make it inside the event loop.
    """

    def __init__(
        self,
        target: str,
        files: PemFiles,
        *,
        options: ChannelOptions = (),
        server_name: str | None = None,
        interval: float = 1.0,
        grace: float = 30.0,
        unreachable: float = UNREACHABLE_SECONDS,
    ) -> None:
        self.target = target
        self._tls = WatchedTls(files, what="client_certificate", interval=interval)
        self._options = options
        self._server_name = server_name
        self._grace = grace
        self._unreachable = unreachable
        self._closing: set[asyncio.Task[None]] = set()
        self._current = self._open(self._tls.material)

    @property
    def channel(self) -> grpc.aio.Channel:
        """The channel to use for the next call."""
        return self._fresh().channel

    def stub(self, make: Callable[[grpc.aio.Channel], _Stub]) -> _Stub:
        """The stub to use for the next call, `provider.stub(WriterStub)`."""
        return self._fresh().stub(make)

    async def close(self) -> None:
        """Closes all channels; calls that still run are cancelled."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._current.channel.close()

    def _fresh(self) -> MtlsChannel:
        material = self._tls.poll()
        if material is not None:
            self._replace(material, "a new certificate")
        elif time.monotonic() - self._opened >= self._unreachable and self._reaches_nobody():
            self._replace(self._tls.material, "nobody was reached")
        return self._current

    def _reaches_nobody(self) -> bool:
        return self._current.channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE

    def _replace(self, material: TlsMaterial, why: str) -> None:
        old, self._current = self._current, self._open(material)
        task = asyncio.get_running_loop().create_task(old.channel.close(self._grace))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        _log.info("channel rebuilt", extra={"target": self.target, "why": why})

    def _open(self, material: TlsMaterial) -> MtlsChannel:
        self._opened = time.monotonic()
        return MtlsChannel(self.target, material, options=self._options, server_name=self._server_name)
