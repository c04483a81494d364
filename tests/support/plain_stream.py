"""One SendMessages stream of gRPC's synchronous client, in a thread.

The asynchronous client cannot show how a server ends a stream while it writes: a write that fails because the stream
has ended makes it report INTERNAL and drop the answers that it has not read yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc import status_pb2
from tests.support.refusals import Refusal, of_status

from qim.writer.v1 import writer_pb2, writer_pb2_grpc
from qim_devkit.pki import CertFiles


@dataclass(frozen=True)
class Ended:
    """Everything that a stream answered, and how it ended; `refusal` only where it ended with a named reason."""

    answers: list[writer_pb2.SendMessagesResponse]
    code: grpc.StatusCode
    details: str
    refusal: Refusal | None


async def play(address: str, files: CertFiles, frames: Iterable[writer_pb2.SendMessagesRequest]) -> Ended:
    """Writes the frames as fast as the server takes them, until they are all written or the server ends the stream."""
    return await asyncio.to_thread(_play, address, files, frames)


def _play(address: str, files: CertFiles, frames: Iterable[writer_pb2.SendMessagesRequest]) -> Ended:
    credentials = grpc.ssl_channel_credentials(files.ca.read_bytes(), files.key.read_bytes(), files.cert.read_bytes())
    answers: list[writer_pb2.SendMessagesResponse] = []
    with grpc.secure_channel(address, credentials) as channel:
        stub: Any = writer_pb2_grpc.WriterStub(channel)  # type: ignore[arg-type]  # the stubs are typed for grpc.aio
        call = stub.SendMessages(iter(frames), timeout=30)
        refusal = None
        try:
            answers.extend(call)
        except grpc.RpcError:
            for key, value in call.trailing_metadata() or ():
                if key == "grpc-status-details-bin":
                    refusal = of_status(status_pb2.Status.FromString(value))
        return Ended(answers, call.code(), call.details() or "", refusal)
