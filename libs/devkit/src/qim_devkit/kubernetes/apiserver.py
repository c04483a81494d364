"""A Kubernetes API server of one's own: etcd and kube-apiserver on loopback, with no node and no container.

That is enough for what a cluster says when manifests are applied: strict validation of fields and values, defaults,
admission with the Pod Security profiles, and server-side dry runs.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import shutil
import ssl
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from qim_devkit.kubernetes.tools import find_api_server, find_etcd, find_kubectl
from qim_devkit.ports import allocate
from qim_devkit.tether import tethered

CRDS: Final = Path(__file__).with_name("crds.yaml")
"""The kinds of operators that the manifests use (cert-manager, prometheus-operator, k8ssandra-operator)."""

_START_SECONDS: Final = 90.0
_KUBECTL_SECONDS: Final = 120.0
_CALL_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05
_STARTS: Final = 3
_LOG_END: Final = 1500


class ApiServerError(Exception):
    """etcd or kube-apiserver ended or was not ready in time, with the end of its log; or kubectl did not answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a kubectl command said.

    Attributes:
        code: its exit code.
        output: standard output.
        errors: standard error, where warnings are too.
    """

    code: int
    output: str
    errors: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered to an HTTP call.

    Attributes:
        status: HTTP's number.
        body: JSON, or a word.
        warnings: the header lines `Warning`, each `299 - "text"`.
    """

    status: int
    body: str
    warnings: tuple[str, ...]


class ApiServer:
    """etcd and kube-apiserver as child processes, in a temporary directory that goes with them.

    Both end with the thread that called `start`, however that ends (qim_devkit.tether). Every client needs the token of
    `kubeconfig`, which may do everything.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="qim-kubernetes-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._token = secrets.token_urlsafe(32)
        self._port = 0

    @property
    def kubeconfig(self) -> Path:
        """What kubectl needs to reach it, of mode 0600."""
        return self.directory / "kubeconfig"

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of etcd and kube-apiserver while they run."""
        return tuple(process.pid for process in self._processes)

    def start(self, timeout: float = _START_SECONDS) -> None:
        """Start both and wait until the server is ready and knows the kinds of CRDS.

        Args:
            timeout: seconds.

        Raises:
            KubernetesToolMissing: a program is not there and cannot be built; the first build takes minutes.
            ApiServerError: one of them ended or was not ready in time.
        """
        etcd, server, _ = find_etcd(), find_api_server(), find_kubectl()
        self._write_credentials()
        for attempt in range(1, _STARTS + 1):
            try:
                self._launch(etcd, server)
                self._wait_until_ready(timeout)
                break
            except ApiServerError as error:
                self._end()
                if "address already in use" not in str(error) or attempt == _STARTS:
                    raise
        self.install(CRDS)

    def kubectl(self, *arguments: str, stdin: str = "") -> Answer:
        """Run a kubectl command against it.

        Raises:
            ApiServerError: it did not end in time.
        """
        command = [
            *(str(find_kubectl()), f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.directory / 'discovery'}"),
            *arguments,
        ]
        try:
            done = subprocess.run(  # noqa: S603  words of the caller's
                command, input=stdin, capture_output=True, encoding="utf-8", check=False, timeout=_KUBECTL_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise ApiServerError(f"kubectl {' '.join(arguments)} did not end in {_KUBECTL_SECONDS:g} s") from None
        return Answer(done.returncode, done.stdout, done.stderr)

    def request(self, method: str, path: str, body: object = None, *, content: str = "application/json") -> Reply:
        """One call of its HTTP interface with every right.

        Args:
            path: with the query.
            body: is sent as JSON.
            content: the media type of the body.

        Raises:
            ApiServerError: it does not answer.
        """
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=_CALL_SECONDS, context=self._trust())
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content, "Accept": "application/json"}
        try:
            with contextlib.closing(connection):
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                response = connection.getresponse()
                text = response.read().decode(errors="replace")
                return Reply(response.status, text, tuple(response.headers.get_all("Warning", ())))
        except (OSError, http.client.HTTPException) as error:
            raise ApiServerError(f"kube-apiserver does not answer: {error}") from error

    def install(self, crds: Path) -> None:
        """Teach it the kinds of CustomResourceDefinitions, in place of what it knew by their names.

        Args:
            crds: a file of them or a directory of such files.

        Raises:
            ApiServerError: they are refused, with the server's words.
        """
        # Server-side: the CRDs of operators are too large for the annotation in which a client-side apply keeps them.
        applied = self.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={crds}")
        if applied.code == 0:
            wait = ("wait", "--for=condition=Established", "--timeout=60s", f"--filename={crds}")
            applied = self.kubectl(*wait)
        if applied.code:
            raise ApiServerError(f"{crds}: {applied.errors.strip()}")
        shutil.rmtree(self.directory / "discovery", ignore_errors=True)

    def remove(self) -> None:
        """End both and delete the directory."""
        self._end()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> ApiServer:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def _write_credentials(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        self._secret("service-accounts.key", pem.decode())
        self._secret("tokens.csv", f'{self._token},admin,1,"system:masters"\n')

    def _secret(self, name: str, content: str) -> None:
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_text(content)

    def _launch(self, etcd: Path, server: Path) -> None:
        ports = allocate(("etcd", "peers", "server"), {})
        self._port = ports["server"]
        store, peers = (f"http://127.0.0.1:{ports[name]}" for name in ("etcd", "peers"))
        self._spawn(
            *(str(etcd), f"--data-dir={self.directory / 'etcd'}", "--logger=zap", "--log-level=warn"),
            *(f"--listen-client-urls={store}", f"--advertise-client-urls={store}"),
            *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
            f"--initial-cluster=default={peers}",
        )
        key = self.directory / "service-accounts.key"
        self._spawn(
            *(str(server), f"--etcd-servers={store}", f"--cert-dir={self.directory / 'certificates'}"),
            *("--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={self._port}"),
            *("--service-account-issuer=https://qim.local", f"--service-account-key-file={key}"),
            *(f"--service-account-signing-key-file={key}", f"--token-auth-file={self.directory / 'tokens.csv'}"),
            *("--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16"),
            # No controller makes the accounts of namespaces here.
            "--disable-admission-plugins=ServiceAccount",
        )

    def _spawn(self, *command: str) -> None:
        with self._log(Path(command[0]).name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(  # noqa: S603  programs that `tools` found
                    tethered(command),
                    cwd=self.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _log(self, program: str) -> Path:
        return self.directory / f"{program}.log"

    def _wait_until_ready(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while True:
            for process, program in zip(self._processes, ("etcd", "kube-apiserver"), strict=True):
                if process.poll() is not None:
                    raise ApiServerError(f"{program} ended while starting:\n{self._end_of_log(program)}")
            if self._ready():
                break
            if time.monotonic() > end:
                raise ApiServerError(
                    f"kube-apiserver was not ready within {timeout:g} s:\n{self._end_of_log('kube-apiserver')}"
                )
            time.sleep(_POLL_SECONDS)
        self._write_kubeconfig()

    def _ready(self) -> bool:
        # The certificate is there once it listens.
        try:
            return self._authority.exists() and self.request("GET", "/readyz").status == http.HTTPStatus.OK
        except ApiServerError:
            return False

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._authority)

    @property
    def _authority(self) -> Path:
        """The certificate that kube-apiserver made for itself, which is its authority too."""
        return self.directory / "certificates" / "apiserver.crt"

    def _write_kubeconfig(self) -> None:
        server = {"server": f"https://127.0.0.1:{self._port}", "certificate-authority": str(self._authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
            "current-context": "local",
        }
        self._secret("kubeconfig", json.dumps(config))

    def _end_of_log(self, program: str) -> str:
        try:
            return self._log(program).read_text(errors="replace")[-_LOG_END:]
        except OSError:
            return ""

    def _end(self) -> None:
        for process in self._processes:
            # Nothing of its data is kept, and asked politely kube-apiserver would first wait for its clients.
            process.kill()
            process.wait()
        self._processes.clear()
        shutil.rmtree(self.directory / "etcd", ignore_errors=True)
