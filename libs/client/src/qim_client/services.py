"""The services that a gateway calls, each over mTLS."""

from __future__ import annotations

import asyncio

from qim.membership.v1 import membership_pb2_grpc
from qim.session.v1 import session_pb2_grpc
from qim.writer.v1 import writer_pb2_grpc
from qim_client.config import TlsFiles
from qim_client.connection import DEFAULT_TIMEOUT, Connection
from qim_client.retry import RetryPolicy
from qim_common import tls
from qim_common.channels import ChannelOptions, ChannelProvider


class Services:
    """Connections to the writer's and the session service's methods. Make it inside the event loop.

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
        to_writer, to_session = (
            ChannelProvider(target, client_tls(files), options=options) for target in (writer, session)
        )
        self._channels = (to_writer, to_session)
        self.membership = Connection(to_writer, membership_pb2_grpc.GroupMembershipStub, timeout=timeout, policy=policy)
        self.writer = Connection(to_writer, writer_pb2_grpc.WriterStub, timeout=timeout, policy=policy)
        self.session = Connection(to_session, session_pb2_grpc.SessionStub, timeout=timeout, policy=policy)

    async def close(self) -> None:
        """Close all channels; calls that still run are cancelled."""
        await asyncio.gather(*(channels.close() for channels in self._channels))


def client_tls(files: TlsFiles) -> tls.PemFiles:
    """The files of a client configuration, as channels take them."""
    return tls.PemFiles(files.cert, files.key, (files.ca,))
