"""Runs scenario files: what visible ranges, unread counts and mailboxes must be, as data (tests/conformance/README.md).

`scenario` are the values, `files` reads them, `operations` carries steps out, `sights` looks through people's eyes,
`stalls` through those of their further devices, `checks` compares; `performance` is one scenario from beginning to end,
`theatre` many of them in one of the modes, and `python -m tests.conformance.runner FILE...` puts all together.
"""
