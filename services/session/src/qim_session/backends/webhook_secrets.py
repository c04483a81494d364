"""The secrets that a webhook's requests are signed with: one, or two while rotating."""

from __future__ import annotations

import logging
from pathlib import Path

from qim_common.start import StartRefusedError
from qim_common.telemetry.metrics import reload_metrics
from qim_common.tokens import TokenKeyError, parse_keys
from qim_common.watched_files import WatchedFiles

_log = logging.getLogger(__name__)


class WebhookSecrets:
    """Of the form of a token key file. Rereads the file when it changes; a bad one leaves the secrets as they were."""

    def __init__(self, path: Path, *, interval: float = 1.0) -> None:
        """Raises StartRefusedError when the file cannot be read or taken."""
        self._files = WatchedFiles([path], interval=interval)
        self._path = path
        try:
            (content,) = self._files.read()
        except OSError as error:
            raise StartRefusedError(f"{path}: cannot be read ({error.strerror}); set QIM_WEBHOOK_SECRET_FILE") from None
        self._secrets = parse_keys(content, str(path))

    def current(self) -> tuple[bytes, ...]:
        """The secrets now; every request carries a signature under each."""
        changed = self._files.poll()
        if changed is not None:
            try:
                self._secrets = parse_keys(changed[0], str(self._path))
            except TokenKeyError as error:
                reload_metrics().count("webhook_secrets", ok=False)
                _log.error("webhook secrets not taken, keeping the old ones", extra={"error": str(error)})
            else:
                reload_metrics().count("webhook_secrets", ok=True)
                _log.info("webhook secrets reloaded", extra={"secrets": len(self._secrets)})
        return self._secrets
