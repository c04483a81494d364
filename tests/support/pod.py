"""A Valkey pod that `kubectl exec` reaches: commands run in a sandbox with the pod's volume and mounted files.

The wheel of the tests' Valkey has the server only, so `valkey-cli` is a few lines that say what they are told.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests.support.sandbox import Sandbox

from qim_devkit.valkey import ValkeyServer

_CLI: Final = """#!{python}
import os, sys
import redis

client = redis.Redis("{host}", {port}, password=os.environ.get("REDISCLI_AUTH") or None, decode_responses=True)
connection = client.connection_pool.get_connection()
try:
    connection.send_command(*(sys.argv[1:] or sys.stdin.readline().split()))
    reply = connection.read_response()
except redis.ConnectionError:
    sys.exit(0 if sys.argv[1:2] == ["SHUTDOWN"] else 1)
except redis.RedisError as error:
    sys.exit(str(error))
pairs = [part for pair in reply.items() for part in pair] if isinstance(reply, dict) else reply
print("\\n".join(map(str, pairs)) if isinstance(pairs, list) else pairs)
"""

_KUBECTL: Final = """#!{python}
import os, sys

words = sys.argv[1:]
assert words[:2] == ["-n", "qim"], words
words = words[2:]
if words[0] == "scale":
    sys.exit()
assert words.pop(0) == "exec", words
while words[0].startswith("-"):
    words.pop(0)
assert words.pop(0) == "qim-valkey-0" and words.pop(0) == "--", words
os.environ["PATH"] = "/pod:" + os.environ["PATH"]
os.execv({arguments!r}[0], {arguments!r} + words)
"""


class ValkeyPod:
    """One Valkey with a volume and, where it has one, a password.

    Args:
        directory: made here: its data, and the files that are mounted.
    """

    def __init__(self, directory: Path, *, password: str = "") -> None:
        self.directory = directory
        self.data = directory / "data"
        self.auth = directory / "auth"
        self.auth.mkdir(parents=True)
        self.mount(password)
        self._server = ValkeyServer(self.data, options={"requirepass": f'"{password}"'})
        self.host, self.port = self._server.host, self._server.port

    @classmethod
    def of(cls, data: Path, host: str, port: str) -> Self:
        """The pod around a server without a password that somebody else starts and stops."""
        pod = cls(data.parent / f"pod-of-{data.name}")
        pod.data, pod.host, pod.port = data, host, int(port)
        return pod

    def mount(self, password: str) -> None:
        """Another password in the file that the pod has, as the kubelet brings it."""
        (self.auth / "password").write_text(password)

    def takes(self, password: str) -> bool:
        """Whether the server lets somebody in with it."""
        # A refused login is not tried again.
        with redis.Redis(self.host, self.port, password=password, retry=Retry(NoBackoff(), 0)) as client:
            try:
                return bool(client.ping())
            except redis.AuthenticationError:
                return False

    def arguments(self, programs: Path) -> list[str]:
        """The command line in front of what is executed in the pod; `valkey-cli` is written to `programs`."""
        cli = programs / "valkey-cli"
        cli.write_text(_CLI.format(python=sys.executable, host=self.host, port=self.port))
        cli.chmod(0o755)
        sandbox = Sandbox(mounts={"/etc/valkey/auth": self.auth, "/pod": programs}, writable={"/data": self.data})
        return sandbox.arguments([])

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.stop()


def write_kubectl(programs: Path, pod: ValkeyPod) -> None:
    """A `kubectl` that executes commands in this pod, and scales nothing: the test does."""
    (programs / "pod").mkdir()
    kubectl = programs / "kubectl"
    kubectl.write_text(_KUBECTL.format(python=sys.executable, arguments=pod.arguments(programs / "pod")))
    kubectl.chmod(0o755)
