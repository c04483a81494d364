"""Idempotency keys (contracts.md, "Idempotency"): against vectors computed with another BLAKE3 (a plain implementation
of its specification), so that no two versions of the suite ever look for an entry in another place."""

from __future__ import annotations

from qim_common.idempotency import RequestClass, content_digest, entry_field, id_time
from qim_common.ids import ConversationId, TenantId, UserId, uuid7

UP, DOWN = UserId(bytes(range(1, 17))), UserId(bytes(range(16, 0, -1)))
GROUP = ConversationId(bytes.fromhex("022122232425262728292a2b2c2d2e2f"))
SEVEN = TenantId(7)
UUID7 = bytes.fromhex("018f0000000070008000000000000001")


def test_idempotency_entries_and_digests() -> None:
    assert entry_field(SEVEN, RequestClass.SEND, UP, GROUP, UUID7).hex() == "76fe4f96016c3e02f92e30630f99a7dc"
    assert (
        entry_field(SEVEN, RequestClass.OPERATOR, b"operator:ops", GROUP, UUID7).hex()
        == "d88337a332815e78f786b9f09071d4b9"
    )
    assert content_digest(b"a", b"bc").hex() == "10c9feffe8d93925"


def test_entries_of_other_classes_callers_conversations_tenants_and_ids_never_meet() -> None:
    other = ConversationId(b"\2" + bytes(14) + b"\1")
    fields = {
        entry_field(SEVEN, RequestClass.SEND, UP, GROUP, UUID7),
        entry_field(SEVEN, RequestClass.MEMBER, UP, GROUP, UUID7),
        entry_field(SEVEN, RequestClass.OPERATOR, UP, GROUP, UUID7),
        entry_field(TenantId(8), RequestClass.SEND, UP, GROUP, UUID7),
        entry_field(SEVEN, RequestClass.SEND, DOWN, GROUP, UUID7),
        entry_field(SEVEN, RequestClass.SEND, UP, other, UUID7),
        entry_field(SEVEN, RequestClass.SEND, UP, GROUP, UP),
    }
    assert len(fields) == 7


def test_parts_of_a_content_do_not_run_into_each_other() -> None:
    assert len({content_digest(*parts) for parts in ([b"ab"], [b"a", b"b"], [b"ab", b""], [b"", b"ab"])}) == 4


def test_the_time_of_an_id_is_that_of_a_uuid7_and_zero_of_others() -> None:
    made = uuid7()
    assert id_time(made) == int.from_bytes(made[:6], "big")
    assert id_time(UP) == 0
