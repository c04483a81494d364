"""What installations may lose: the projection, which can be made again, and the oldest entries of dispatch logs."""

from __future__ import annotations

import random
from enum import Enum
from typing import Final

from tests.model.consumers.ledger import Ledger
from tests.model.consumers.replicas import Stores
from tests.model.consumers.written import PEOPLE
from tests.support.dispatch import TENANT

from qim_common.keys import BucketKeys, PersonKeys, checkpoints, progress
from qim_common.redis import Argument, Script, run

WIPE: Final = Script("wipe", "return redis.call('DEL', unpack(KEYS))")
"""A script, so that its answer comes in turn with those of the service's."""


class Losses(Enum):
    """What a walk may lose. Losses heal much that walks without them show."""

    NOTHING = "nothing"
    PROJECTION = "the projection, and of the dispatch logs what was consumed"
    LOGS = "the projection, and the oldest entries of the dispatch logs"


class Loser:
    """Brings the losses of a walk about; each method returns what it did, in words."""

    def __init__(self, losses: Losses, draw: random.Random, stores: Stores, ledger: Ledger) -> None:
        self._losses = losses
        self._draw = draw
        self._stores = stores
        self._ledger = ledger

    async def wipe(self) -> str:
        """Lose the projection of both instances, or the checkpoints alone; what belongs to one goes in one step."""
        lists = self._draw.random() < 0.6
        topology = self._stores.topology
        for place, instance in enumerate(self._stores.instances):
            keys: list[Argument] = [checkpoints(place), progress(place)]
            for person in PEOPLE if lists else ():
                bucket = topology.person_bucket(TENANT, person)
                if topology.instance_of(bucket) == place:
                    of_person = PersonKeys(TENANT, person, bucket)
                    keys += [of_person.convs, of_person.bigconvs, of_person.epoch]
            await run(instance, WIPE, keys, [])
            self._ledger.wiped(place, lists=lists)
        return f"wipe the {'projection' if lists else 'checkpoints'}"

    async def trim(self, partition: int) -> str:
        """Lose the oldest entries of a dispatch log, consumed or not; or those only that were."""
        upto: list[Argument] = ["MAXLEN", self._draw.choice((0, 0, 1, 2))]
        if self._losses is Losses.PROJECTION:
            stored = [held.checkpoints.get(partition) for held in await self._ledger.look()]
            if None in stored:
                return f"no trim of partition {partition}"
            upto = ["MINID", str(min(one.position for one in stored if one is not None).after())]
        instance = self._stores.instances[self._stores.topology.instance_of(partition)]
        gone = await instance.call("XTRIM", BucketKeys(partition).dispatch, *upto)
        return f"trim {gone} of partition {partition}"
