"""One Redis instance that is kept connected."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from qim_common.backoff import Backoff
from qim_common.errors import BackendUnavailable
from qim_common.redis.address import RedisAddress
from qim_common.redis.connection import STALL_SECONDS, Argument, Connection
from qim_common.redis.errors import FencedInstance, RedisUnavailable, StartRefused
from qim_common.telemetry.standing import Standing

_log = logging.getLogger(__name__)

Hook = Callable[[Connection], Awaitable[object]]
"""Run on each new connection before it is used; an exception means that the instance is not used."""

HOOK_SECONDS: Final = 10.0
"""The time that all hooks of one connection have together."""


class Instance:
    """One Redis instance: connected in the background again and again, while nothing is ever repeated by itself.

    While it is down, calls fail at once with `BackendUnavailable`; calls that were outstanding when it went down fail
    with `ConnectionLost` (outcome unknown). Where a hook says that it is fenced, calls fail with `FencedInstance` until
    no hook says so any more.

    Args:
        address: parsed, or as `RedisAddress.parse` takes it.
        name: the connection's name in CLIENT LIST, such as `writer`.
        instance_position: the place in the configured list, from 0.
        stall_timeout: seconds without a reply after which the connection is dropped; None for blocking reads.

    Attributes:
        on_connected: run in order on each new connection before it is used again: safety check, scripts, fingerprint.
            Append before `start`, or later for all connections that follow.
        on_lost: functions without arguments, called when a connection that was in use has gone.
    """

    def __init__(
        self,
        address: RedisAddress | str,
        *,
        name: str,
        instance_position: int,
        stall_timeout: float | None = STALL_SECONDS,
    ) -> None:
        self.address = RedisAddress.parse(address) if isinstance(address, str) else address
        self.name = name
        self.position = instance_position
        self.on_connected: list[Hook] = []
        self.on_lost: list[Callable[[], None]] = []
        self._stall_timeout = stall_timeout
        self._connection: Connection | None = None
        self._connected = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._why_down = "start() was not called"
        self._fenced: FencedInstance | None = None
        self._absent = Standing(_log, level=logging.INFO, by_words=True)
        self._unusable = Standing(_log, level=logging.ERROR, by_words=True)

    def __repr__(self) -> str:
        return f"<Instance {self.position} at {self.address} {'up' if self.connected else 'down'}>"

    @property
    def connected(self) -> bool:
        """Whether calls are written now."""
        return self._connected.is_set()

    @property
    def connection(self) -> Connection:
        """The connection in use.

        Raises:
            BackendUnavailable: the instance is down.
        """
        if self._connection is None:
            raise self._down()
        return self._connection

    async def start(self, timeout: float = 30.0) -> None:
        """Connect for the first time and run the hooks, trying for `timeout` seconds; from then on keep connected.

        Raises:
            FencedInstance: at once; see `admit` for a hook that must not keep a service from starting.
            StartRefused: an instance that must not be used (`UnsafeRedis`, `TopologyMismatch`, credentials); at once.
            BackendUnavailable: nothing that serves was reached in time.
            ReplyError: a script does not compile, or another programming error.
        """
        if self._keeper is not None:
            raise RuntimeError(f"{self!r} was started before")
        end = asyncio.get_running_loop().time() + timeout
        for pause in _pauses():
            try:
                connection = await self._connect()
                break
            except RedisUnavailable as error:
                if asyncio.get_running_loop().time() + pause > end:
                    raise
                self._absent.holds(f"Redis {self.address}", f"is waited for: {error}")
            await asyncio.sleep(pause)
        self._absent.only(())
        self._use(connection)
        self._keeper = asyncio.create_task(self._keep_connected(connection), name=f"redis {self.address}")

    async def admit(self, hook: Hook) -> None:
        """Run one more hook, on the connection in use and on all that follow.

        Where it says that the instance is fenced, or cannot tell now (BackendUnavailable), the connection is dropped
        and the instance tried again in the background: the service starts, and others serve.

        Raises:
            StartRefused: as the hook does; the instance is not used.
        """
        self.on_connected.append(hook)
        connection = self._connection
        if connection is None:
            return
        try:
            await self._run_hooks(connection, [hook])
        except FencedInstance as error:
            self._fenced = error
            _log.error("%s", error.detail)
            connection.close(error.detail)
        except BackendUnavailable as error:
            _log.warning("Redis %s is not used yet: %s", self.address, error)
            connection.close(str(error))
        except BaseException:
            connection.close("a check failed")
            raise
        finally:
            if connection.closed:
                await connection.wait_closed()

    async def close(self) -> None:
        """Disconnect for good; outstanding calls fail with `ConnectionLost`."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        connection, self._connection = self._connection, None
        self._connected.clear()
        self._why_down = "closed"
        if connection is not None:
            connection.close()
            await connection.wait_closed()

    def call(self, *args: Argument) -> asyncio.Future[Any]:
        """As `Connection.call`; while the instance is down the future has failed already with `BackendUnavailable`."""
        if self._connection is None:
            return self._failed()
        return self._connection.call(*args)

    def pipeline(self, commands: Sequence[Sequence[Argument]]) -> asyncio.Future[list[Any]]:
        """As `Connection.pipeline`; while the instance is down the future has failed already."""
        if self._connection is None:
            return self._failed()
        return self._connection.pipeline(commands)

    async def drain(self) -> None:
        """As `Connection.drain`. Raises BackendUnavailable while the instance is down."""
        await self.connection.drain()

    def _down(self) -> RedisUnavailable | FencedInstance:
        if self._fenced is not None:
            return FencedInstance(self._fenced.detail)
        return RedisUnavailable(f"Redis {self.address} is down: {self._why_down}")

    def _failed(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(self._down())
        return future

    async def _connect(self) -> Connection:
        connection = await Connection.open(self.address, name=self.name, stall_timeout=self._stall_timeout)
        try:
            await self._run_hooks(connection, self.on_connected)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _run_hooks(self, connection: Connection, hooks: Sequence[Hook]) -> None:
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                for hook in hooks:
                    await hook(connection)
        except TimeoutError as error:
            raise RedisUnavailable(f"Redis {self.address}: checks not done in {HOOK_SECONDS:g} s") from error

    def _use(self, connection: Connection) -> None:
        def lost() -> None:
            # A replaced or given-up connection is none of the instance's business any more.
            if self._connection is not connection:
                return
            self._connection = None
            self._connected.clear()
            self._why_down = connection.why
            for callback in self.on_lost:
                callback()

        connection.on_close.append(lost)
        self._connection = connection
        self._fenced = None
        self._connected.set()
        if connection.closed:  # it went while the last hook ran
            lost()

    async def _keep_connected(self, connection: Connection) -> None:
        while True:
            await connection.wait_closed()
            _log.warning("lost Redis %s: %s", self.address, connection.why)
            for pause in _pauses():
                await asyncio.sleep(pause)
                try:
                    connection = await self._connect()
                    break
                except FencedInstance as error:
                    if self._fenced is None or self._fenced.detail != error.detail:
                        _log.error("%s", error.detail)
                    self._fenced = error
                except BackendUnavailable as error:
                    # Of the instance, or of what a hook compares it with.
                    self._why_down = error.detail if isinstance(error, RedisUnavailable) else str(error)
                    self._absent.holds(f"Redis {self.address}", f"is still down: {error}")
                except StartRefused as error:
                    # An operator can mend it, so the service stays up and does not use the instance.
                    self._why_down = str(error)
                    self._unusable.holds(f"Redis {self.address}", f"is back but must not be used: {error}")
                except Exception as error:  # noqa: BLE001  whatever it is, it stays unused and is tried again
                    self._why_down = f"{type(error).__name__}: {error}"
                    self._unusable.holds(f"Redis {self.address}", f"is back but its checks failed: {error}", error)
            self._use(connection)
            self._absent.only(())
            self._unusable.only(())
            _log.warning("connected to Redis %s again", self.address)


def _pauses() -> Iterator[float]:
    """Growing pauses in seconds, the later ones scattered so that many services do not come back in step."""
    backoff = Backoff.quick()
    while True:
        yield backoff.fail() * random.uniform(0.5, 1.0)  # noqa: S311  no secret
