"""Protobuf in and out, and nothing else: each handler converts, calls one command, and converts back."""
