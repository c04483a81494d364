"""Runs scenario files: what visible ranges, unread counts and mailboxes must be, as data (tests/conformance/README.md).

`scenario` are the values, `files` reads them, `stage` carries steps out, `sights` looks through people's eyes, `checks`
compares, and `python -m tests.conformance.runner FILE...` puts them together.
"""
