"""Protobuf in and out."""
