"""The process `qim-push-webhook`: push notifications to a webhook (docs/push.md), and the example of a sink."""

from __future__ import annotations

import logging
import ssl
from contextlib import aclosing

from qim_common.config import PushWebhookSettings, load
from qim_common.server.runtime import run_service
from qim_common.start import StartRefusedError
from qim_common.telemetry.logs import configure_logging
from qim_common.telemetry.metrics import push_metrics
from qim_session.backends.webhook import WebhookSink
from qim_session.backends.webhook_secrets import WebhookSecrets
from qim_session.push import serve


def main() -> None:
    """The entry point; exits with 1 where the process must not run, with 2 on a bad configuration."""
    settings = load(PushWebhookSettings)
    configure_logging(service=settings.service, level=settings.log_level, log_format=settings.log_format)
    # It logs the whole URL of each request, which may hold a token.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    run_service(lambda: serve_webhook(settings))


async def serve_webhook(settings: PushWebhookSettings) -> None:
    """Push until told to stop. Raises StartRefusedError where the process must not run as it is configured."""
    secrets = WebhookSecrets(settings.webhook_secret_file)
    try:
        sink = WebhookSink(
            settings.webhook_url,
            secrets,
            push_metrics(),
            ca_file=settings.webhook_ca_file,
            timeout=settings.webhook_timeout_seconds,
            connections=settings.webhook_connections,
        )
    except (ssl.SSLError, OSError):
        raise StartRefusedError("QIM_WEBHOOK_CA_FILE: holds no certificate that can be taken") from None
    async with aclosing(sink):
        await serve(settings, sink)


if __name__ == "__main__":
    main()
