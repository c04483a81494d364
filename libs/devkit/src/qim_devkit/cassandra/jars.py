"""What a Cassandra node runs on: a Java that it supports, and its jars, fetched once by Maven and kept outside git."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from qim_devkit.protos import repository_root

POM: Final = Path(__file__).with_name("pom.xml")
SUPPORTED_JAVA: Final = (11, 17)
PACKAGES: Final = "openjdk-17-jre-headless and maven"
"""The Debian packages that bring both."""

_MAVEN_SECONDS: Final = 600


class CassandraNotAvailable(Exception):  # noqa: N818  it says what is the case
    """No Cassandra can run here: Java, Maven or the jars are missing; the message says what to install."""


def find_java() -> Path:
    """The `java` of JAVA_HOME or else of PATH.

    Raises:
        CassandraNotAvailable: there is none, or it is of a version that Cassandra 5 does not support.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise CassandraNotAvailable(f"Java is not installed; on Debian install {PACKAGES}")
    told = subprocess.run([found, "-version"], capture_output=True, text=True, check=False, timeout=30)  # noqa: S603
    version = re.search(r'version "(\d+)', told.stderr)
    if version is None or int(version[1]) not in SUPPORTED_JAVA:
        words = " or ".join(map(str, SUPPORTED_JAVA))
        raise CassandraNotAvailable(
            f"{found} is {told.stderr.splitlines()[0] if told.stderr else 'no Java'}; Cassandra 5 needs Java {words} "
            "(JAVA_HOME names another one)"
        )
    return Path(found)


def provide_jars(cache: Path | None = None) -> Path:
    """The directory with the jars that `pom.xml` names; Maven copies them there the first time.

    Args:
        cache: where it is kept; by default `.cache/cassandra` of the checkout. Processes may call this at once.

    Raises:
        CassandraNotAvailable: Maven is missing, or could not fetch them.
    """
    cache = cache or repository_root() / ".cache" / "cassandra"
    # Another pom is another directory: nothing of an older version stays on the class path.
    jars = cache / hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise CassandraNotAvailable(f"Maven, which fetches Cassandra, is not installed; on Debian install {PACKAGES}")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            _fetch(maven, jars)
    return jars


def _fetch(maven: str, jars: Path) -> None:
    with tempfile.TemporaryDirectory(dir=jars.parent) as temporary:
        fresh = Path(temporary) / "jars"
        command = [
            *(maven, "--batch-mode", "--quiet", "--file", str(POM), "dependency:copy-dependencies"),
            *("-DincludeScope=runtime", f"-DoutputDirectory={fresh}"),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_MAVEN_SECONDS)  # noqa: S603
        except subprocess.TimeoutExpired:
            raise CassandraNotAvailable(f"Maven did not fetch Cassandra within {_MAVEN_SECONDS} s") from None
        if done.returncode or not any(fresh.glob("*.jar")):
            raise CassandraNotAvailable(f"Maven could not fetch Cassandra:\n{(done.stdout + done.stderr)[-1500:]}")
        fresh.rename(jars)
