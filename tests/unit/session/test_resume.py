"""From which moment a device goes on: never later than what it has not acknowledged."""

from __future__ import annotations

import struct

import pytest
from tests.support.dispatch import group

from qim_common.errors import PageTokenInvalid
from qim_common.identity import Actor
from qim_common.ids import DeviceId, TenantId, UserId
from qim_session.commands.live.tokens import ResumeTokens
from qim_session.domain.cursors import Cursor
from qim_session.domain.resume import ResumePoint, Unacknowledged

A, B, C = group(1), group(2), group(3)
DEVICE = DeviceId(bytes([4]) * 16)


def cursor(seq: int, generation: int = 1) -> Cursor:
    return Cursor(generation, seq)


def test_with_nothing_sent_it_is_where_everything_has_been_handed_over() -> None:
    assert Unacknowledged().resume_ms(5_000) == 5_000


def test_it_is_just_before_the_oldest_that_is_not_acknowledged() -> None:
    sent = Unacknowledged()
    sent.sent(A, cursor(1), 2_000)
    sent.sent(A, cursor(2), 3_000)
    sent.sent(B, cursor(9), 1_500)
    assert sent.resume_ms(5_000) == 1_499
    sent.acknowledged(B, cursor(9))
    assert sent.resume_ms(5_000) == 1_999
    assert sent.resume_ms(1_000) == 1_000, "what lags is not passed over"


def test_a_conversation_counts_until_its_newest_is_acknowledged() -> None:
    sent = Unacknowledged()
    sent.sent(A, cursor(1), 2_000)
    sent.sent(A, cursor(2), 3_000)
    sent.acknowledged(A, cursor(1))
    assert (len(sent), sent.resume_ms(5_000)) == (1, 1_999)
    sent.acknowledged(A, cursor(2))
    assert (len(sent), sent.resume_ms(5_000)) == (0, 5_000)


def test_an_acknowledgement_of_an_older_generation_acknowledges_nothing() -> None:
    sent = Unacknowledged()
    sent.sent(A, cursor(1, generation=2), 2_000)
    sent.acknowledged(A, cursor(50, generation=1))
    assert len(sent) == 1


def test_beyond_its_bound_the_moment_stands_still() -> None:
    sent = Unacknowledged(conversations_max=2)
    for conversation, time_ms in ((A, 3_000), (B, 4_000), (C, 3_500)):
        sent.sent(conversation, cursor(1), time_ms)
    assert len(sent) == 2
    for conversation in (A, B, C):
        sent.acknowledged(conversation, cursor(1))
    assert sent.resume_ms(9_000) == 3_499


@pytest.mark.parametrize(
    ("conversation", "asked", "covered"),
    [
        (A, cursor(3), True),
        (A, cursor(5), True),
        (A, cursor(6), False),
        (A, cursor(3, generation=2), False),
        (B, cursor(1), False),
    ],
)
def test_only_what_was_sent_is_known_to_have_been_delivered(conversation: bytes, asked: Cursor, covered: bool) -> None:
    sent = Unacknowledged()
    sent.sent(A, cursor(5), 1_000)
    assert sent.covers(A if conversation == A else B, asked) is covered


def test_the_moment_is_never_before_time_began() -> None:
    sent = Unacknowledged()
    sent.sent(A, cursor(1), 0)
    assert sent.resume_ms(10) == 0


def test_a_point_survives_packing() -> None:
    point = ResumePoint(DEVICE, 1_700_000_000_123, 2**64 - 1)
    assert ResumePoint.unpack(point.pack()) == point


@pytest.mark.parametrize("data", [b"", b"x" * 25, b"x" * 32, b"x" * 34])
def test_a_point_of_another_length_is_refused(data: bytes) -> None:
    with pytest.raises(struct.error):
        ResumePoint.unpack(data)


class _Open:
    """A signer that takes everything: what is left is the payload's own check."""

    def issue(self, method: str, tenant: int, person: bytes, conversation: bytes, payload: bytes) -> str:
        return payload.hex()

    def open(self, method: str, tenant: int, person: bytes, conversation: bytes, token: str) -> bytes:
        return bytes.fromhex(token)


def test_a_token_is_of_one_device() -> None:
    tokens = ResumeTokens(_Open())
    phone = Actor(TenantId(1), UserId(bytes([1]) * 16), DEVICE)
    tablet = Actor(TenantId(1), phone.user, DeviceId(bytes([5]) * 16))
    token = tokens.issue(phone, 77, 5)
    assert tokens.open(phone, token) == (77, 5)
    with pytest.raises(PageTokenInvalid):
        tokens.open(tablet, token)


@pytest.mark.parametrize("payload", ["", "00", "01" + "04" * 16 + "00" * 8, "01" + "04" * 16 + "00" * 16])
def test_a_payload_that_is_none_is_refused(payload: str) -> None:
    phone = Actor(TenantId(1), UserId(bytes([1]) * 16), DEVICE)
    with pytest.raises(PageTokenInvalid):
        ResumeTokens(_Open()).open(phone, payload)
