"""Benchmarks of the commit path, repeatable on one machine: `python -m bench --help`."""

import os

# The benchmark starts processes while its gRPC client runs; they begin with exec, so gRPC has nothing to do at the
# fork, and would say so each time.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
