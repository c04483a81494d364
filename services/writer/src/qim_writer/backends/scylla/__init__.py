"""The comparison backend: messages, members and conversation sets on CQL alone (docs/decisions/0018).

It shows what is lost without an atomic step over membership and messages, and is refused at start unless allowed.
"""
