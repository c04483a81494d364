"""Certificates: each process has its own, of the role that it plays, signed by the right one of the two authorities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qim_common.config import split_listen
from qim_common.errors import RoleNotAllowed
from qim_common.identity import Peer, Role, parse_spiffe
from qim_devkit.kubernetes.checks.addresses import SERVICE_FIELDS, names_of, service_address
from qim_devkit.kubernetes.checks.fault import Fault, place
from qim_devkit.kubernetes.checks.selecting import service_targets
from qim_devkit.kubernetes.checks.suite import Process, Suite
from qim_devkit.kubernetes.mounts import Source
from qim_devkit.kubernetes.pods import pod_template, workloads
from qim_devkit.kubernetes.render import Document
from qim_devkit.pki import AUTHORITY_OF_ROLE, Authority

FILES: Final = {"QIM_TLS_CERT_FILE": "tls.crt", "QIM_TLS_KEY_FILE": "tls.key", "QIM_TLS_CA_FILE": "ca.crt"}
"""Variable -> the key in the Secret that cert-manager makes."""

OPERATORS: Final = "QIM_OPERATOR_CA_FILE"
USAGES: Final = frozenset({"server auth", "client auth"})
SERVICE_ROLES: Final = frozenset({Role.WRITER, Role.SESSION, Role.ADMIN})
"""Roles of the suite's own processes; the others are of whoever calls it."""


def faults(suite: Suite) -> list[Fault]:
    """Certificates that are missing, of another role or authority, lack a name, or lie where they must not."""
    found: list[Fault] = []
    for process in suite.processes:
        if process.has("tls_cert_file"):
            found += _of_process(suite, process)
    for certificate in suite.manifests.of("Certificate"):
        found += _certificate(suite, certificate)
    return [*found, *_authorities(suite), *_keys_of_authorities(suite), *_owners(suite)]


def issuer_name(authority: Authority) -> str:
    """The name of its Issuer."""
    return f"qim-{authority}"


def secret_name(authority: Authority) -> str:
    """The Secret with the authority's certificate and key, made by the Certificate of the same name."""
    return f"qim-{authority}-ca"


def certificate_of(suite: Suite, process: Process) -> Document | None:
    """The Certificate that QIM_TLS_CERT_FILE is of; None where it is of none."""
    source = process.container.sources.get(process.container.environment.get("QIM_TLS_CERT_FILE", ""))
    if source is None or source.kind != "Secret":
        return None
    certificates = suite.manifests.of("Certificate")
    return next((one for one in certificates if one["spec"].get("secretName") == source.name), None)


def peer_of(certificate: Document) -> Peer | None:
    """Whom it names; None where that is nobody."""
    uris: list[str] = certificate["spec"].get("uris") or []
    try:
        return parse_spiffe(str(uris[0])) if len(uris) == 1 else None
    except RoleNotAllowed:
        return None


def _of_process(suite: Suite, process: Process) -> Iterator[Fault]:
    certificate = certificate_of(suite, process)
    if certificate is None:
        remedy = "mount the Secret of its Certificate where it points"
        yield Fault(process.where, "QIM_TLS_CERT_FILE is no file of a Certificate's Secret", remedy)
        return
    secret = certificate["spec"]["secretName"]
    for variable, key in FILES.items():
        wanted = Source("Secret", secret, key)
        if process.container.sources.get(process.container.environment.get(variable, "")) != wanted:
            yield Fault(process.where, f"{variable} is not {key} of the Secret {secret}", "all three are of one Secret")
    if OPERATORS in process.variables:
        wanted = Source("Secret", secret_name(Authority.OPERATORS), "tls.crt")
        if process.container.sources.get(process.container.environment.get(OPERATORS, "")) != wanted:
            yield Fault(process.where, f"{OPERATORS} is not tls.crt of the Secret {wanted.name}", "mount that one")
    peer = peer_of(certificate)
    if peer is None:
        return
    where = place(certificate)
    if peer.role is not process.program.role:
        what = f"names the role {peer.role}, and {process.name} runs {process.program.name}"
        yield Fault(where, what, f"write /qim/{process.program.role}/ into its URI")
    if peer.name != process.name:
        yield Fault(where, f"names {peer.name}, and {process.name} has it", f"let its URI end in {process.name}")
    trust_domain = process.value("trust_domain")
    if trust_domain is not None and peer.trust_domain != trust_domain:
        remedy = "the trust domain is the same everywhere"
        yield Fault(where, f"is of {peer.trust_domain}, and QIM_TRUST_DOMAIN is {trust_domain}", remedy)
    yield from _names(suite, process, certificate)


def _names(suite: Suite, process: Process, certificate: Document) -> Iterator[Fault]:
    component = process.program.component
    own = {
        name
        for service in suite.manifests.of("Service")
        if any(target is process.workload for target in service_targets(suite, service))
        for name in names_of(service)
    }
    called = set()
    if f"{component}_addr" in SERVICE_FIELDS:
        addresses = filter(None, (service_address(caller, component) for caller in suite.processes))
        called = {split_listen(address)[0] for address in addresses}
    there = set(certificate["spec"].get("dnsNames") or ())
    for name in sorted((own | called if process.program.serves else set()) - there):
        yield Fault(place(certificate), f"lacks the name {name}, under which it is called", "add it to dnsNames")
    foreign = {name for service in suite.manifests.of("Service") for name in names_of(service)} - own
    for name in sorted(there & foreign):
        yield Fault(place(certificate), f"has the name {name} of another Service", "remove it from dnsNames")


def _certificate(suite: Suite, certificate: Document) -> Iterator[Fault]:
    where, spec = place(certificate), certificate["spec"]
    if spec.get("isCA"):
        yield from _of_authority(suite, certificate)
        return
    peer = peer_of(certificate)
    if peer is None:
        remedy = "give it one URI, spiffe://<trust-domain>/qim/<role>/<name>"
        yield Fault(where, f"names no peer of qim: {', '.join(spec.get('uris') or ['no URI'])}", remedy)
        return
    wanted = issuer_name(AUTHORITY_OF_ROLE[peer.role])
    issuer = spec.get("issuerRef", {})
    if (issuer.get("name"), issuer.get("kind", "Issuer")) != (wanted, "Issuer"):
        what = f"is signed by {issuer.get('kind', 'Issuer')} {issuer.get('name')}"
        yield Fault(where, what, f"the role {peer.role} is signed by Issuer {wanted}")
    usages = set(spec.get("usages") or ())
    needed = USAGES if peer.role in SERVICE_ROLES else {"client auth"}
    if not needed <= usages:
        yield Fault(where, f"may not be used as {', '.join(sorted(needed - usages))}", "add it to usages")
    key = spec.get("privateKey") or {}
    if (key.get("algorithm"), key.get("size", 256)) != ("ECDSA", 256) or key.get("rotationPolicy") != "Always":
        remedy = "write privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}"
        yield Fault(where, "its key is not a new P-256 one with each renewal", remedy)
    domains = {process.value("trust_domain") for process in suite.processes} - {None}
    if domains and peer.trust_domain not in domains:
        yield Fault(where, f"is of {peer.trust_domain}", f"QIM_TRUST_DOMAIN is {', '.join(sorted(domains))}")


def _of_authority(suite: Suite, certificate: Document) -> Iterator[Fault]:
    where, spec = place(certificate), certificate["spec"]
    key = spec.get("privateKey") or {}
    if (key.get("algorithm"), key.get("size", 256)) != ("ECDSA", 256) or key.get("rotationPolicy") != "Never":
        what = "its key is not P-256, or a new one with each renewal: what the former one signed would count no more"
        yield Fault(where, what, "write privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Never}")
    issuer = spec.get("issuerRef", {}).get("name")
    signs = [one for one in suite.manifests.of("Issuer") if one["metadata"]["name"] == issuer]
    if suite.processes and not any("selfSigned" in (one.get("spec") or {}) for one in signs):
        yield Fault(where, f"is signed by {issuer}, which is no self-signing Issuer here", "name one")


def _authorities(suite: Suite) -> Iterator[Fault]:
    """Where Issuers are in the manifests, each signs with its own authority's key."""
    if not suite.processes:
        return
    issuers = {issuer["metadata"]["name"]: issuer for issuer in suite.manifests.of("Issuer")}
    for authority in set(AUTHORITY_OF_ROLE.values()):
        name, secret = issuer_name(authority), secret_name(authority)
        issuer = issuers.get(name)
        if issuer is None:
            yield Fault(f"Issuer {name}", "is not there", f"make it: it signs what the authority {authority} signs")
            continue
        if not issuer["spec"]:
            yield Fault(place(issuer), "signs with nothing", f"write ca: {{secretName: {secret}}}")
        signs = issuer["spec"].get("ca", {}).get("secretName")
        if "ca" in issuer["spec"] and signs != secret:
            yield Fault(place(issuer), f"signs with the Secret {signs}", f"it signs with {secret}")
        made = [one for one in suite.manifests.of("Certificate") if one["spec"].get("secretName") == secret]
        if "ca" in issuer["spec"] and not any(one["spec"].get("isCA") for one in made):
            yield Fault(place(issuer), f"no Certificate with isCA makes the Secret {secret}", "make one")


def _keys_of_authorities(suite: Suite) -> Iterator[Fault]:
    """Of a CA's Secret nobody mounts more than the certificate, and the operators' CA only the admin service."""
    secrets = {secret_name(authority) for authority in AUTHORITY_OF_ROLE.values()}
    for workload in workloads(suite.manifests):
        for volume in pod_template(workload).get("spec", {}).get("volumes", ()):
            projected = (source.get("secret", {}) for source in volume.get("projected", {}).get("sources", ()))
            for name, items in (
                (volume.get("secret", {}).get("secretName"), volume.get("secret", {}).get("items")),
                *((source.get("name"), source.get("items")) for source in projected),
            ):
                if name in secrets and (items is None or any(item["key"] == "tls.key" for item in items)):
                    remedy = "mount its item tls.crt alone"
                    yield Fault(place(workload), f"mounts the key of the CA {name}: it could be anybody", remedy)
    for process in suite.processes:
        sources = process.container.sources.values()
        trusts = any(source.name == secret_name(Authority.OPERATORS) for source in sources)
        if trusts and OPERATORS not in process.variables:
            yield Fault(process.where, "mounts the operators' CA", "only the admin service trusts it")


def _owners(suite: Suite) -> Iterator[Fault]:
    """A certificate of the suite's roles belongs to one workload."""
    owned: dict[str, list[str]] = {}
    for process in suite.processes:
        certificate = certificate_of(suite, process)
        if certificate is not None:
            owned.setdefault(certificate["metadata"]["name"], []).append(process.name)
    for certificate in suite.manifests.of("Certificate"):
        peer = peer_of(certificate)
        if peer is None or peer.role not in SERVICE_ROLES or not suite.processes:
            continue
        owners = owned.get(certificate["metadata"]["name"], [])
        if len(owners) != 1:
            who = " and ".join(owners) or "nobody"
            yield Fault(place(certificate), f"{who} has it", "each workload has one of its own, none is spare")
