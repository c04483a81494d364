"""Where a key lives: bucket to instance (storage.md, "Where a key lives"). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from qim_common.ids import ConversationId, TenantId, UserId, commit_bucket, person_bucket

if TYPE_CHECKING:
    from qim_common.redis.address import RedisAddress  # its package imports this module

MAX_BUCKETS = 1000
REDIS_BACKEND: Final = "redis"


@dataclass(frozen=True, slots=True)
class Topology:
    """The Redis instances of one role in their configured order, and the number of buckets spread over them.

    `addresses` are as `Instance` takes them; `buckets` is 1 to 1000; `installation_id` names the installation;
    `backend` as in QIM_BACKEND says what the instances hold of it. Two services agree on where everything lives exactly
    when these are equal, which the stored fingerprint checks at start.
    """

    addresses: tuple[RedisAddress | str, ...]
    buckets: int
    installation_id: str
    backend: str = REDIS_BACKEND

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ValueError("a topology has at least one instance")
        if not 1 <= self.buckets <= MAX_BUCKETS:
            raise ValueError(f"buckets must be from 1 to {MAX_BUCKETS}, not {self.buckets}")

    @property
    def count(self) -> int:
        """The number of instances."""
        return len(self.addresses)

    def instance_of(self, bucket: int) -> int:
        """The position of the instance that holds `bucket`."""
        return bucket % len(self.addresses)

    def buckets_of(self, instance: int) -> range:
        """The buckets that the instance at this position holds, ascending."""
        return range(instance, self.buckets, len(self.addresses))

    def conversation_bucket(self, tenant: TenantId, conversation: ConversationId) -> int:
        """The commit bucket of a canonical conversation id."""
        return commit_bucket(tenant, conversation, self.buckets)

    def person_bucket(self, tenant: TenantId, user: UserId) -> int:
        """The bucket of a person, which is also the person's mailbox shard."""
        return person_bucket(tenant, user, self.buckets)
