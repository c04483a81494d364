"""The images as their Dockerfiles make them, for tests: `images` has all of them, made once in each test process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.support.dockerfile import Builder, Image
from tests.support.image_base import BaseImage, make_base, require_python_of_images
from tests.support.sandbox import Sandbox, require_sandbox

from qim_devkit.image_locks import IMAGE_LOCKS, read_lock

ROOT: Final = Path(__file__).parents[2]

DOCKERFILES: Final[Mapping[str, str]] = {
    "qim-writer": "services/writer/Dockerfile",
    "qim-push": "services/session/push.Dockerfile",
    "qimctl": "services/admin/qimctl.Dockerfile",
    "qim-session": "services/session/Dockerfile",
    "qim-admin": "services/admin/Dockerfile",
}
"""Name of each image -> where it is from. Those with packages of their own come first: they are made side by side."""

LOCKS: Final[Mapping[str, str]] = {
    "qim-writer": "services/writer/requirements.lock",
    "qim-push": "services/session/push-requirements.lock",
    "qimctl": "services/admin/qimctl-requirements.lock",
    "qim-session": "services/session/requirements.lock",
    "qim-admin": "services/admin/requirements.lock",
}
"""Name of each image -> the lock file of what is in it."""

USER: Final = 10001
"""Of every image."""

DOWNLOAD_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Images:
    """What has been built.

    Attributes:
        base: what stands below every image.
        by_name: image -> what its Dockerfile makes.
    """

    base: BaseImage
    by_name: Mapping[str, Image]

    def sandbox(self, name: str) -> Sandbox:
        """A container of this image as its user, with nothing mounted."""
        return Sandbox(roots=(self.by_name[name].root, self.base.root), user=USER)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """All images, each made by performing its Dockerfile."""
    require_sandbox()
    require_python_of_images()
    directory = tmp_path_factory.mktemp("images")
    wheels = directory / "wheels"
    with ThreadPoolExecutor(2) as pool:
        # Side by side: one waits for the registry most of the time.
        downloading = pool.submit(_download, wheels)
        base = make_base(directory / "base")
        downloading.result()
        built = directory / "built"
        built.mkdir()
        builder = Builder(built, ROOT, base, wheels)
        made = pool.map(lambda path: builder.build(ROOT / path), DOCKERFILES.values())
        yield Images(base, dict(zip(DOCKERFILES, made, strict=True)))


def _download(wheels: Path) -> None:
    """What the images' lock files name, from where pip has been told to look; mostly its cache."""
    wheels.mkdir()
    # Each package once: pip takes longer to read them than to copy them.
    packages = {package.text for path in IMAGE_LOCKS for package in read_lock((ROOT / path).read_text())}
    wanted = wheels / "wanted.txt"
    wanted.write_text("\n".join(sorted(packages)) + "\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary", ":all:", "--dest", str(wheels), "--requirement", str(wanted)]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8", timeout=DOWNLOAD_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
