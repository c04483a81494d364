"""Keys: one slot for whatever one script touches, one key set per canonical id, the segments of the sender column."""

from __future__ import annotations

import re

import pytest
from tests.unit.writer.people import ANA, GROUP, TENANT

from qim_common.ids import MAX_TENANT, TenantId
from qim_common.keys import SENDER_SEGMENT, BucketKeys, ConversationKeys, PersonKeys, sender_segment

TAG = re.compile(r"\{([^}]*)\}")


def test_everything_of_a_conversation_and_its_bucket_shares_a_slot() -> None:
    bucket, keys = BucketKeys(7), ConversationKeys(TENANT, GROUP, 7)
    names = [
        *(bucket.meta, bucket.dispatch, bucket.memlog, bucket.retained, *bucket.idem),
        *(keys.grpmeta, keys.grpcur, keys.grpstays, keys.grpmem, keys.grpchg, keys.grplog),
        *(keys.msgcseq, keys.msgrec, keys.msgctl, keys.msgts, keys.msgsnd(0), keys.msgsnd(1)),
    ]
    assert {TAG.findall(name)[0] for name in names} == {"b007"}
    assert len(set(names)) == len(names)


def test_keys_of_a_conversation_start_with_its_tenant_and_hold_its_id() -> None:
    keys = ConversationKeys(TenantId(MAX_TENANT), GROUP, 255)
    assert keys.grpmeta == f"{MAX_TENANT}:{{b255}}:{GROUP.hex()}:grpmeta"
    assert keys.msgsnd(3).endswith(":msgsnd:3")


def test_keys_of_tenants_and_people_are_apart() -> None:
    assert ConversationKeys(TenantId(1), GROUP, 7).grpmeta != ConversationKeys(TenantId(11), GROUP, 7).grpmeta
    person = PersonKeys(TENANT, ANA, 7)
    assert {TAG.findall(name)[0] for name in (person.convs, person.authority, person.epoch)} == {"u007"}


@pytest.mark.parametrize(
    ("seq", "segment"),
    [(1, 0), (SENDER_SEGMENT, 0), (SENDER_SEGMENT + 1, 1), (2 * SENDER_SEGMENT, 1), (2 * SENDER_SEGMENT + 1, 2)],
)
def test_the_segment_of_a_seq(seq: int, segment: int) -> None:
    assert sender_segment(seq) == segment
