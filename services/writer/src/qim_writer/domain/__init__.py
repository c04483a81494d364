"""The rules of membership and visibility as pure functions on frozen dataclasses; no I/O, no protobuf."""
