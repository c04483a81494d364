"""Recovering a commit instance from the archive (docs/recovery.md)."""
