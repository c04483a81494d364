"""Server certificates that are reloaded without a restart (pitfalls of grpc.aio, point 5)."""

import grpc

from qim_common.channels import ChannelProvider, MtlsChannel
from qim_common.tls import CertificateError, PemFiles, TlsMaterial, WatchedTls

__all__ = ["CertificateError", "ChannelProvider", "MtlsChannel", "PemFiles", "server_credentials"]


def server_credentials(files: PemFiles, *, interval: float = 1.0) -> grpc.ServerCredentials:
    """Credentials that demand a client certificate of `files.cas` and follow changes of the files.

    New handshakes use the new files; connections that stand keep their identity until `max_connection_age`.
    Raises CertificateError.
    """
    watched = WatchedTls(files, what="server_certificate", interval=interval)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        # Runs on a thread of gRPC, once a handshake; None keeps the certificate in use.
        material = watched.poll()
        return None if material is None else _configuration(material)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(watched.material),
        fetch,  # type: ignore[arg-type]  # the stub leaves out None, which gRPC documents
        require_client_authentication=True,
    )


def _configuration(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(material.key, material.cert)], material.roots)
