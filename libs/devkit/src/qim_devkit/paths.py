"""Where a development suite keeps what: everything lies below one directory, `.qim/` for `make up`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SuitePaths:
    """The files and directories below `root`."""

    root: Path

    @property
    def pki(self) -> Path:
        """Certificate authorities and certificates."""
        return self.root / "pki"

    @property
    def bindings(self) -> Path:
        """Which certificate name may act in which tenants (QIM_BINDINGS_FILE)."""
        return self.root / "bindings.yaml"

    @property
    def token_key(self) -> Path:
        """The key of page and resume tokens (QIM_TOKEN_KEY_FILE), mode 0600."""
        return self.root / "token.key"

    @property
    def client_config(self) -> Path:
        """What `qim` and `qimctl` read: qim_client.config."""
        return self.root / "client.toml"

    @property
    def push_environment(self) -> Path:
        """What `qim-push-webhook` needs to work beside the suite (docs/push.md), mode 0600."""
        return self.root / "push.env"

    @property
    def qimctl_environment(self) -> Path:
        """What `qimctl recover` and `qimctl schema` need of the suite's stores (docs/recovery.md)."""
        return self.root / "qimctl.env"

    @property
    def webhook_secret(self) -> Path:
        """The secret of that webhook (QIM_WEBHOOK_SECRET_FILE), mode 0600."""
        return self.root / "webhook.secret"

    @property
    def state(self) -> Path:
        """The ports and the installation id, remembered for the next start."""
        return self.root / "state.json"

    @property
    def lock(self) -> Path:
        """Held by the one supervisor that uses this directory."""
        return self.root / "lock"

    def valkey(self, name: str) -> Path:
        """The data directory of one embedded Valkey."""
        return self.root / name

    def log(self, name: str) -> Path:
        """What the service `name` writes to its standard output and error."""
        return self.root / "logs" / f"{name}.log"
