"""The gRPC server that all services share: interceptor, credentials, health, harness, drain."""
