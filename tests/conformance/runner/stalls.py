"""What people's further devices see of the conversation, in a performance with live streams.

Everybody has one device that is attached from before the conversation exists and acknowledges what comes. At each
`expect` another one of everybody is attached, at another session replica, waits until everything delivered so far has
come, and asks a third replica for the list. Both must see what the first device, which pulls, is expected to see.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tests.conformance.runner.cast import Cast
from tests.conformance.runner.scenario import Value, as_ranges
from tests.conformance.runner.sights import DELIVERED, LISTED, entry_of
from tests.support.subscribers import Subscriber, Subscriptions

from qim_common.ids import ConversationId

SUBSCRIBED: Final = "subscribed"
"""How a check tells the device that is attached from the start."""

LATE: Final = "attached late"
"""How a check tells the device that is attached at the `expect`."""

View = Mapping[tuple[str, str], Value]
"""What was seen, by key of `expect` and how it was seen."""


class Stalls:
    """The devices of one scenario's people."""

    def __init__(self, cast: Cast, conversation: ConversationId, subscriptions: Subscriptions) -> None:
        self._cast = cast
        self._conversation = conversation
        self._subscriptions = subscriptions
        self._subscribers: dict[str, Subscriber] = {}
        self._devices = itertools.count()

    async def open(self, people: Iterable[str]) -> None:
        """Attach the first device of each of these people."""
        await asyncio.gather(*map(self._open, people))

    async def _open(self, name: str) -> None:
        subscriber = self._subscribers[name] = Subscriber(self._conversation, acknowledges=True)
        await self._subscriptions.attach(
            self._cast.replica(name, 1), self._cast.acting(name, device="subscribed").actor, subscriber
        )

    async def see(self, name: str, keys: Collection[str], pulled: Value) -> View:
        """What the person's further devices see.

        `pulled` is what the mailbox gave to the first one, if it was looked at: the attached one has settled when it
        has the same, or when the time is up.
        """
        found: dict[tuple[str, str], Value] = {}
        if DELIVERED in keys:
            subscriber = self._subscribers[name]
            await subscriber.until(lambda: self._value(subscriber) == pulled)
            found[DELIVERED, SUBSCRIBED] = self._value(subscriber)
        if LISTED.keys() & set(keys) or DELIVERED in keys:
            found |= await self._late(name, keys)
        return found

    async def _late(self, name: str, keys: Collection[str]) -> View:
        person = self._cast.acting(name, 2, device=f"late {next(self._devices)}")
        late = Subscriber(self._conversation, acknowledges=False)
        attachment = await self._subscriptions.attach(self._cast.replica(name), person.actor, late)
        entry = await entry_of(person, self._conversation) if LISTED.keys() & set(keys) else None
        if attachment is not None:
            await self._subscriptions.detach(attachment)
        found: dict[tuple[str, str], Value] = {(key, LATE): LISTED[key](entry) for key in keys if key in LISTED}
        return found | ({(DELIVERED, LATE): self._value(late)} if DELIVERED in keys else {})

    def _value(self, subscriber: Subscriber) -> Value:
        """What a device was told: all seqs, withheld ones included; or what must not have happened."""
        return subscriber.fault or as_ranges(subscriber.ranges(self._conversation))
