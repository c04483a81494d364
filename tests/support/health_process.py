"""A process that serves grpc.health.v1 and nothing else: what a supervisor sees of a service.

PROBE_LISTEN is its `host:port`; PROBE_CONDUCT is `serve`, `refuse` (ends at once), `hesitate` (answers NOT_SERVING for
ever) or `linger` (serves, and ignores SIGTERM).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


def main() -> None:
    conduct = os.environ["PROBE_CONDUCT"]
    if conduct == "refuse":
        print("QIM_REDIS_ADDR is not set: name the first instance")
        sys.exit(3)
    answers = health.HealthServicer()
    state = "NOT_SERVING" if conduct == "hesitate" else "SERVING"
    answers.set("", health_pb2.HealthCheckResponse.ServingStatus.Value(state))
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    health_pb2_grpc.add_HealthServicer_to_server(answers, server)
    server.add_insecure_port(os.environ["PROBE_LISTEN"])
    ended = [False]
    signal.signal(signal.SIGTERM, lambda *_: ended.__setitem__(0, conduct != "linger"))
    server.start()
    print(f"serving as process {os.getpid()}", flush=True)
    while not ended[0]:
        time.sleep(0.05)  # the kernel may give a signal to a thread of gRPC, which wakes no pause() of this one
    server.stop(grace=None)


if __name__ == "__main__":
    main()
