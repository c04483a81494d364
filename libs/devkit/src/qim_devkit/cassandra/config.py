"""The files and the command line of one small Cassandra node. Pure, but for `NodeConfig.write`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

DATACENTER: Final = "dc1"
RACK: Final = "rack1"

_OPENED: Final = (
    "lang.module",
    "lang",
    "lang.reflect",
    "io",
    "nio",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)
_JVM: Final = (
    "-Xms384m",
    "-Xmx384m",
    "-Xss256k",
    "-XX:+UseSerialGC",
    "-XX:MaxDirectMemorySize=128m",
    "-XX:-UsePerfData",
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED),
    *(
        f"--add-opens=java.base/jdk.internal.{name}=ALL-UNNAMED"
        for name in ("loader", "ref", "reflect", "math", "module", "util.jar")
    ),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
    *(
        f"--add-exports={name}=ALL-UNNAMED"
        for name in (
            "java.base/jdk.internal.misc",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.base/java.lang.ref",
            "java.base/java.lang.reflect",
            "java.management.rmi/com.sun.jmx.remote.internal.rmi",
            "java.rmi/sun.rmi.registry",
            "java.rmi/sun.rmi.server",
            "java.sql/java.sql",
            "jdk.unsupported/sun.misc",
        )
    ),
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    # Without it the node closes its standard output, which is its log here, once it serves.
    "-Dcassandra-foreground=yes",
    "-Dcassandra.ring_delay_ms=2000",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.superuser_setup_delay_ms=0",
)
_LOGBACK: Final = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{ISO8601} %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """One node: `directory` holds everything of it, `seed` is the address of the cluster's first node."""

    directory: Path
    cluster: str
    address: str
    seed: str
    storage_port: int
    native_port: int

    @property
    def conf(self) -> Path:
        """The directory of its configuration files; it is on the class path."""
        return self.directory / "conf"

    def yaml(self) -> dict[str, Any]:
        """cassandra.yaml: memory small, an empty ring joined at once, everything below `directory`."""
        data = self.directory / "data"
        return {
            "cluster_name": self.cluster,
            "num_tokens": 16,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch": "GossipingPropertyFileSnitch",
            "seed_provider": [
                {
                    "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                    "parameters": [{"seeds": f"{self.seed}:{self.storage_port}"}],
                }
            ],
            "auto_bootstrap": False,
            "listen_address": self.address,
            "rpc_address": self.address,
            "storage_port": self.storage_port,
            "native_transport_port": self.native_port,
            "data_file_directories": [str(data / "sstables")],
            "commitlog_directory": str(data / "commitlog"),
            "saved_caches_directory": str(data / "saved_caches"),
            "hints_directory": str(data / "hints"),
            "cdc_raw_directory": str(data / "cdc_raw"),
            "commitlog_sync": "periodic",
            "commitlog_sync_period": "1000ms",
            "commitlog_segment_size": "8MiB",
            "commitlog_total_space": "64MiB",
            "memtable_heap_space": "48MiB",
            "memtable_offheap_space": "48MiB",
            "file_cache_size": "16MiB",
            "networking_cache_size": "16MiB",
            "key_cache_size": "4MiB",
            "auto_snapshot": False,
        }

    def write(self) -> None:
        """Write the configuration files anew."""
        self.conf.mkdir(parents=True, exist_ok=True)
        (self.conf / "cassandra.yaml").write_text(yaml.safe_dump(self.yaml(), sort_keys=False))
        (self.conf / "cassandra-rackdc.properties").write_text(f"dc={DATACENTER}\nrack={RACK}\n")
        (self.conf / "logback.xml").write_text(_LOGBACK)

    def command(self, java: Path, jars: Path) -> list[str]:
        """The command line of the node. No JMX: nothing here asks it, and it would need a port of its own."""
        return [
            str(java),
            *_JVM,
            f"-Dcassandra.config={(self.conf / 'cassandra.yaml').as_uri()}",
            f"-Dcassandra.storagedir={self.directory / 'data'}",
            f"-Dlogback.configurationFile={self.conf / 'logback.xml'}",
            *("-cp", f"{self.conf}:{jars}/*"),
            "org.apache.cassandra.service.CassandraDaemon",
        ]
