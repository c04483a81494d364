"""The metrics port: what Prometheus reads."""

from collections.abc import Callable

from prometheus_client import start_http_server

from qim_common.config import split_listen


def serve_metrics(listen: str) -> tuple[int, Callable[[], None]]:
    """Serve on `host:port` from now on; the real port, and what ends it (blocking, for a moment).

    Raises OSError if the address cannot be bound.
    """
    host, port = split_listen(listen)
    httpd, thread = start_http_server(port, host)

    def end() -> None:
        httpd.shutdown()
        httpd.server_close()
        thread.join()

    return httpd.server_port, end
