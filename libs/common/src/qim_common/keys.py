"""Every Redis key of qim (storage.md, "Keys per conversation"). Pure; nothing else builds a key.

A key that belongs to a tenant starts with it; the hash tag is the bucket, `{bNNN}` for conversations and `{uNNN}` for
persons, so that everything one script touches lives in one slot. Ids enter keys as hex.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from qim_common.ids import ConversationId, TenantId, UserId

SENDER_SEGMENT = 65_536
"""Seqs per segment of the sender column `msgsnd`; segment k holds the seqs k * 65,536 + 1 to (k + 1) * 65,536."""

IDEMPOTENCY_KEYS = 3
"""Generations of idempotency entries that have a key: two are read, the third is being dropped."""


@dataclass(frozen=True)
class BucketKeys:
    """The keys of one commit bucket, 0 to 999, over all tenants."""

    bucket: int

    @cached_property
    def meta(self) -> str:
        """Hash: generation of the idempotency entries, the stamps of its rotation, the marks of the dispatch log; with
        an archive also `arch`, the id of the newest dispatch entry that is archived with all before it, how many
        entries that are (`archn`), and how many messages and state entries were recorded (`rec`) and archived
        (`arcd`)."""
        return f"{{b{self.bucket:03d}}}:meta"

    @cached_property
    def dispatch(self) -> str:
        """Stream: the dispatch log."""
        return f"{{b{self.bucket:03d}}}:dispatch"

    @cached_property
    def memlog(self) -> str:
        """Stream: the membership log."""
        return f"{{b{self.bucket:03d}}}:memlog"

    @cached_property
    def retained(self) -> str:
        """Set: the groups of this bucket that have a retention by age, each tenant u64 and conversation."""
        return f"{{b{self.bucket:03d}}}:retained"

    @cached_property
    def untrimmed(self) -> str:
        """Set: the groups of this bucket whose floor has moved above their oldest record, each as in `retained`."""
        return f"{{b{self.bucket:03d}}}:untrimmed"

    @cached_property
    def hot(self) -> str:
        """Sorted set: the conversations of this bucket that have archived records here, each as in `retained`, by the
        commit time (ms) of the oldest."""
        return f"{{b{self.bucket:03d}}}:hot"

    @cached_property
    def idem(self) -> tuple[str, str, str]:
        """Hashes: idempotency entries, generation modulo 3."""
        one, two, three = (f"{{b{self.bucket:03d}}}:idem{n}" for n in range(IDEMPOTENCY_KEYS))
        return one, two, three


@dataclass(frozen=True)
class ConversationKeys:
    """The keys of one conversation."""

    tenant: TenantId
    conversation: ConversationId
    bucket: int
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        prefix = f"{self.tenant}:{{b{self.bucket:03d}}}:{self.conversation.hex()}:"
        object.__setattr__(self, "prefix", prefix)

    @cached_property
    def grpmeta(self) -> str:
        """Hash: version, revision, policy, count and what else is one value per conversation."""
        return self.prefix + "grpmeta"

    @cached_property
    def grpcur(self) -> str:
        """Hash: user to the newest stay, own clear point and sender ordinal."""
        return self.prefix + "grpcur"

    @cached_property
    def grpstays(self) -> str:
        """Hash: user to the older stays, packed."""
        return self.prefix + "grpstays"

    @cached_property
    def grpmem(self) -> str:
        """Sorted set of the present members: mailbox shard u16be, then the user."""
        return self.prefix + "grpmem"

    @cached_property
    def grpchg(self) -> str:
        """Stream: what changed with version V, under the id `V-0`."""
        return self.prefix + "grpchg"

    @cached_property
    def grplog(self) -> str:
        """Stream: changes without a seq and who made them, under the id `revision-0`."""
        return self.prefix + "grplog"

    @cached_property
    def msgcseq(self) -> str:
        """String: the head."""
        return self.prefix + "msgcseq"

    @cached_property
    def msgrec(self) -> str:
        """Hash: seq to record."""
        return self.prefix + "msgrec"

    @cached_property
    def msgctl(self) -> str:
        """Sorted set: the seqs of control messages."""
        return self.prefix + "msgctl"

    @cached_property
    def msgts(self) -> str:
        """Sorted set: samples of (time, seq)."""
        return self.prefix + "msgts"

    def msgsnd(self, segment: int) -> str:
        """String: the sender column's segment, 3 bytes a seq."""
        return f"{self.prefix}msgsnd:{segment}"


def sender_segment(seq: int) -> int:
    """The segment of the sender column that holds `seq` (from 1)."""
    return (seq - 1) // SENDER_SEGMENT


@dataclass(frozen=True, slots=True)
class PersonKeys:
    """The keys of one person in the session store; `bucket` is the person's, 0 to 999."""

    tenant: TenantId
    user: UserId
    bucket: int

    def _key(self, name: str) -> str:
        return f"{self.tenant}:{{u{self.bucket:03d}}}:{self.user.hex()}:{name}"

    @property
    def convs(self) -> str:
        """Sorted set: conversation by the commit time of the newest delivered message."""
        return self._key("convs")

    @property
    def bigconvs(self) -> str:
        """Set: the conversations that were above `projection_fanout_max_members` while the person was in them."""
        return self._key("bigconvs")

    @property
    def flags(self) -> str:
        """Hash: conversation to what the person has set: flags u8, generation u32 and seq u64 of where it was
        hidden, and how often it was set, u32."""
        return self._key("flags")

    @property
    def read_cursors(self) -> str:
        """Hash: conversation to read cursor: generation u32, seq u64."""
        return self._key("read")

    def device_cursors(self, device: bytes) -> str:
        """Hash: conversation to the device's cursor: generation u32, seq u64."""
        return self._key(f"dev:{device.hex()}")

    @property
    def authority(self) -> str:
        """Hash: the conversation set `user_conversation_state` of the redis backend."""
        return self._key("ucs")

    @property
    def epoch(self) -> str:
        """String: the projection epoch up to which this person's set is rebuilt."""
        return self._key("epoch")


@dataclass(frozen=True)
class PersonBucketKeys:
    """The keys of one person bucket, 0 to 999, over all tenants and people."""

    bucket: int

    @cached_property
    def meta(self) -> str:
        """Hash: generation of the idempotency entries, and the stamps of its rotation."""
        return f"{{u{self.bucket:03d}}}:meta"

    @cached_property
    def idem(self) -> tuple[str, str, str]:
        """Hashes: idempotency entries of what people set for themselves, generation modulo 3."""
        one, two, three = (f"{{u{self.bucket:03d}}}:idem{n}" for n in range(IDEMPOTENCY_KEYS))
        return one, two, three


REPLICATION_MARK = "qim:replicated"
"""String, on each commit instance: written so that a call which changed nothing has something to wait for."""


def archiver_lease(bucket: int) -> str:
    """String: which archiver works on a commit instance, whose lowest bucket this is."""
    return f"{{b{bucket:03d}}}:archiver"


def ucs_pending(person_bucket: int) -> str:
    """List: conversations that are new in a person's set and not yet in the authority.

    This and the next five belong to a session instance and carry the tag of its lowest bucket, which is its position;
    in cluster mode, where a script may touch one tag only, there is one of each for every bucket.
    """
    return f"{{u{person_bucket:03d}}}:ucs_pending"


def checkpoints(person_bucket: int) -> str:
    """Hash: dispatch partition to the position whose effects are in this person bucket."""
    return f"{{u{person_bucket:03d}}}:checkpoints"


def progress(person_bucket: int) -> str:
    """Hash: dispatch partition to the commit time (ms) below which everything is in the lists of this person bucket."""
    return f"{{u{person_bucket:03d}}}:progress"


def projection_epoch(person_bucket: int) -> str:
    """String: the projection epoch of a session instance; a person whose mark is older is rebuilt."""
    return f"{{u{person_bucket:03d}}}:projection_epoch"


def usig(person_bucket: int) -> str:
    """Stream: read marks and flags that people set, for their other devices."""
    return f"{{u{person_bucket:03d}}}:usig"


def unflushed(person_bucket: int) -> str:
    """Hash, of the backend tiered only: cursors and flags that are still to be written behind, each with its value."""
    return f"{{u{person_bucket:03d}}}:unflushed"


LEASES = "{u000}:leases"
"""Hash, on the first session instance only: dispatch partition to the replica that holds it."""

REPLICAS = "{u000}:replicas"
"""Sorted set, on the first session instance only: the session service's replicas by the time (ms) they are taken for
dead, by that instance's clock."""


@dataclass(frozen=True, slots=True)
class PushKeys:
    """The keys of one push consumer, on the first session instance only; `name` as in QIM_PUSH_NAME."""

    name: str

    def _key(self, name: str) -> str:
        return f"{{u000}}:push:{self.name}:{name}"

    @property
    def checkpoints(self) -> str:
        """Hash: dispatch partition to the position up to which the sink has taken everything."""
        return self._key("checkpoints")

    @property
    def leases(self) -> str:
        """Hash: dispatch partition to the replica that holds it."""
        return self._key("leases")

    @property
    def replicas(self) -> str:
        """Sorted set: the consumer's replicas by the time (ms) they are taken for dead."""
        return self._key("replicas")
