"""Ack level `replicated`: a commit is answered when every replica that may be promoted has fsynced it.

Whatever waits for one instance goes as one pipeline on one connection: the script calls, a tiny write, `WAIT` and
`WAITAOF`. The write is there because `WAIT` waits for the connection's own newest write: without it a call that only
repeated an answer would wait for nothing, while what it repeats may be on this instance alone. `WAIT` stands before
`WAITAOF` because `WAITAOF` by itself takes a second (a replica answers it before its own fsync).

A server does not serve a connection whose `WAIT` is outstanding, readers neither, so no more than two pipelines are on
their way, and where replicas were missing, nothing more is written until a look at them, a short one, finds them again.
What was written while they were missing has an unknown outcome: the same id gets the first answer once they are back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from qim_common.keys import REPLICATION_MARK
from qim_common.redis import Argument, Instance, NoScript, RedisUnavailable, Script
from qim_common.telemetry.metrics import writer_metrics

WAIT_MS: Final = 1_000
"""How long replicas may take, once for having received and once for having fsynced."""

LOOK_MS: Final = 20
"""The same for a look at whether missing replicas are back, because readers wait for it."""

LOOK_SECONDS: Final = 0.25
"""Between two such looks."""

PIPELINES_IN_FLIGHT: Final = 2

_log = logging.getLogger(__name__)


class NotReplicated(RedisUnavailable):
    """Fewer replicas than demanded have confirmed in time. The instance itself may have executed the call: the outcome
    is unknown, and only a retry with the same id is safe."""


class _Pending:
    """One command and its future reply."""

    __slots__ = ("command", "reply")

    def __init__(self, command: tuple[Argument, ...], reply: asyncio.Future[Any]) -> None:
        self.command = command
        self.reply = reply

    def fail(self, error: BaseException) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)

    def answer(self, reply: Any) -> None:
        if isinstance(reply, Exception):
            self.fail(reply)
        elif not self.reply.done():
            self.reply.set_result(reply)


class ReplicatedLane:
    """The way of mutating calls to one instance. All methods belong to the event loop's thread.

    Args:
        instance: the primary.
        replicas: how many replicas have to confirm, at least 1.
    """

    def __init__(self, instance: Instance, replicas: int) -> None:
        self._instance = instance
        self._replicas = replicas
        self._queue: deque[_Pending] = deque()
        self._in_flight = 0
        self._missing = False
        self._loop = asyncio.get_running_loop()
        self._gauge = writer_metrics().replicas_missing.labels(str(instance.position))
        self._gauge.set(0)

    @property
    def missing(self) -> bool:
        """Whether replicas did not confirm when they were last asked; calls then fail without being written."""
        return self._missing

    def call(self, *args: Argument) -> asyncio.Future[Any]:
        """Write one command, in the order of the calls; the future reply comes when it is replicated.

        It fails as that of `Instance.call`, and with `NotReplicated`. NOSCRIPT and other error replies are the
        command's own."""
        reply: asyncio.Future[Any] = self._loop.create_future()
        if self._missing:
            reply.set_exception(self._too_few("not asked again yet"))
            return reply
        self._queue.append(_Pending(args, reply))
        self._pump()
        return reply

    async def run(self, script: Script, keys: Sequence[Argument], args: Sequence[Argument]) -> Any:
        """Call a script. Raises what the future of `call` fails with."""
        call: tuple[Argument, ...] = ("EVALSHA", script.sha1, len(keys), *keys, *args)
        try:
            return await self.call(*call)
        except NoScript:
            await self._instance.call("SCRIPT", "LOAD", script.source)
            return await self.call(*call)

    async def confirm(self) -> None:
        """Return when everything that the instance holds now is replicated. Raises NotReplicated, RedisUnavailable."""
        await self.call("PING")

    def _pump(self) -> None:
        while self._queue and not self._missing and self._in_flight < PIPELINES_IN_FLIGHT:
            calls = list(self._queue)
            self._queue.clear()
            self._in_flight += 1
            replies = self._instance.pipeline([*(call.command for call in calls), *self._wait(WAIT_MS)])
            replies.add_done_callback(partial(self._answered, calls))

    def _wait(self, ms: int) -> list[tuple[Argument, ...]]:
        return [("SET", REPLICATION_MARK, 1), ("WAIT", self._replicas, ms), ("WAITAOF", 1, self._replicas, ms)]

    def _answered(self, calls: Sequence[_Pending], done: asyncio.Future[list[Any]]) -> None:
        self._in_flight -= 1
        error = done.exception()
        if error is not None:
            for call in calls:
                call.fail(error)
        else:
            *replies, _, received, synced = done.result()
            confirmed = self._confirmed(received, synced)
            for call, reply in zip(calls, replies, strict=True):
                # A script that the instance does not hold was executed nowhere.
                call.answer(
                    reply if confirmed or isinstance(reply, NoScript) else self._too_few(f"{received}, {synced}")
                )
            if not confirmed:
                self._lack(f"{received} received, {synced} fsynced (here, replicas)")
        self._pump()

    def _confirmed(self, received: Any, synced: Any) -> bool:
        if isinstance(received, Exception) or isinstance(synced, Exception):
            return False
        here, there = synced
        return bool(received >= self._replicas and here >= 1 and there >= self._replicas)

    def _too_few(self, found: str) -> NotReplicated:
        return NotReplicated(f"Redis {self._instance.address}: {self._replicas} replicas have to confirm; {found}")

    def _lack(self, found: str) -> None:
        if not self._missing:
            self._missing = True
            self._gauge.set(1)
            _log.error("replicas of Redis %s are missing: %s", self._instance.address, found)
            self._loop.call_later(LOOK_SECONDS, self._look)
        waiting, self._queue = self._queue, deque()
        for call in waiting:
            call.fail(self._too_few(found))

    def _look(self) -> None:
        self._instance.pipeline(self._wait(LOOK_MS)).add_done_callback(self._looked)

    def _looked(self, done: asyncio.Future[list[Any]]) -> None:
        if done.exception() is None and self._confirmed(*done.result()[1:]):
            self._missing = False
            self._gauge.set(0)
            _log.info("the replicas of Redis %s are back", self._instance.address)
            return
        self._loop.call_later(LOOK_SECONDS, self._look)
