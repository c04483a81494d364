"""The client of a gateway: it has authenticated its end users and acts for them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from qim_client.actor import ActorClient
from qim_client.config import GatewayProfile, TlsFiles
from qim_client.connection import DEFAULT_TIMEOUT
from qim_client.frames import FrameStream, LiveFrames
from qim_client.retry import RetryPolicy
from qim_client.sending import SendStream
from qim_client.services import Services
from qim_client.subscribing import Subscription
from qim_common.channels import ChannelOptions
from qim_common.identity import Actor
from qim_common.ids import DeviceId, TenantId, UserId


class GatewayClient:
    """Calls for any end user of the gateway's tenants. Make it inside the event loop, close it at the end.

    Parameters:
        writer, session: `host:port`.
        files: the gateway's certificate and key, and the CA of the services.
        timeout: the deadline of a call that names none, seconds.
        policy: when a call is repeated.
        options: of the channels, beside those of `qim_common.channels`.

    Raises CertificateError if the files cannot be taken.
    """

    def __init__(
        self,
        writer: str,
        session: str,
        files: TlsFiles,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        policy: RetryPolicy | None = None,
        options: ChannelOptions = (),
    ) -> None:
        self._services = Services(writer, session, files, timeout=timeout, policy=policy, options=options)

    @classmethod
    def from_profile(
        cls, profile: GatewayProfile, *, timeout: float = DEFAULT_TIMEOUT, policy: RetryPolicy | None = None
    ) -> Self:
        """The client of a configuration file's section [gateway]."""
        return cls(profile.writer, profile.session, profile.tls, timeout=timeout, policy=policy)

    def as_actor(self, tenant: TenantId, user: UserId, device: DeviceId | None = None) -> ActorClient:
        """Calls for this end user; `device` None: one with the user's own id. Cheap: nothing is connected."""
        return ActorClient(self._services, actor(tenant, user, device))

    def open_stream(self, *, max_frames: int = 32) -> SendStream:
        """A stream for many messages of any end users; `max_frames` wait for answers at once."""
        return SendStream(self._services.writer, max_frames=max_frames)

    def open_frames(self) -> FrameStream:
        """A bare stream of protobuf frames, for load generators."""
        return FrameStream(self._services.writer.stub())

    def subscribe(self, *, max_events: int = 10_000) -> Subscription:
        """What is delivered to any connected end users; `max_events` wait for the reader at once."""
        return Subscription(self._services.session, max_events=max_events)

    def open_live_frames(self) -> LiveFrames:
        """A bare Subscribe stream of protobuf frames, for load generators."""
        return LiveFrames(self._services.session.stub())

    async def close(self) -> None:
        """Close all channels; calls that still run are cancelled."""
        await self._services.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def actor(tenant: TenantId, user: UserId, device: DeviceId | None = None) -> Actor:
    """An end user; `device` None: one with the user's own id."""
    return Actor(tenant, user, device or DeviceId(user))
