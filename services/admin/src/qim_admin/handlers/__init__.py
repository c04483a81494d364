"""gRPC in and out."""
