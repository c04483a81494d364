"""A round's rows of one conversation in pieces that fit in memory."""

from __future__ import annotations

import pytest

from qim_common.ids import ConversationId, TenantId
from qim_writer.domain.archive_rounds import ArchiveRow, ConversationRound

LARGE = b""


def round_of(*records: bytes) -> ConversationRound:
    rows = [ArchiveRow(seq, record) for seq, record in enumerate(records, 1)]
    large = [at for at, record in enumerate(records) if record == LARGE]
    return ConversationRound(bytes(24), TenantId(1), ConversationId(b"\x02" * 16), rows, large)


@pytest.mark.parametrize(
    ("records", "pieces"),
    [
        ((), []),
        ((b"a",), [1]),
        ((b"a", LARGE, LARGE, b"b"), [4]),
        ((LARGE, LARGE, LARGE), [2, 1]),
        ((b"a", LARGE, b"b", LARGE, b"c", LARGE, b"d", LARGE, LARGE), [5, 3, 1]),
    ],
)
def test_a_piece_has_at_most_two_records_that_are_still_to_be_read(
    records: tuple[bytes, ...], pieces: list[int]
) -> None:
    each = round_of(*records)
    found = list(each.pieces(2))
    assert [len(piece) for piece in found] == pieces
    assert [row for piece in found for row in piece] == each.rows
    assert all(sum(row.record == LARGE for row in piece) <= 2 for piece in found)
