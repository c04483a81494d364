"""The rules of the session service; they know neither gRPC nor protobuf."""
