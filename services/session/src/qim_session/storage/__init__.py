"""What the session service needs of its stores and of the writer, as Protocols (design.md, "Layout").

Everything here can raise `BackendUnavailable`: the store or service does not answer now, and what was written may
have been applied. What asks the writer can also raise `InstanceFenced` and `Overloaded`: its words, passed on.
"""
