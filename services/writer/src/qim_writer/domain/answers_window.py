"""How far back requests have their first answers after a recovery (contracts.md, "Idempotency"; docs/recovery.md)."""

from __future__ import annotations

from typing import Final

ENTRIES_MS: Final = 24 * 3_600_000
"""The age at which a bucket's entries rotate."""

GRACE_MS: Final = 2 * 600_000
"""Entries from so much before are there too: an id says when it was made, not when it was carried out."""

WINDOW_MS: Final = ENTRIES_MS + GRACE_MS
"""The archive keeps records of this age wherever the floor is: a recovery makes the answers of sends from them."""
