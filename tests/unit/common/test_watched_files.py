"""Files that are followed without a restart."""

from pathlib import Path

from qim_common.watched_files import WatchedFiles


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _write(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def test_a_change_is_reported_once(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    two.write_text("2")
    files = WatchedFiles([one, two], interval=0)
    assert files.read() == (b"1", b"2")
    assert files.poll() is None

    _write(two, "22")

    assert files.poll() == (b"1", b"22")
    assert files.poll() is None


def test_the_same_content_written_again_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_text("1")
    files = WatchedFiles([path], interval=0)
    files.read()

    _write(path, "1")

    assert files.poll() is None


def test_the_file_system_is_asked_at_most_once_an_interval(tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_text("1")
    clock = Clock()
    files = WatchedFiles([path], interval=1.0, clock=clock)
    files.read()
    _write(path, "11")

    clock.now += 0.9
    assert files.poll() is None
    clock.now += 0.2
    assert files.poll() == (b"11",)


def test_a_file_that_vanishes_leaves_what_was_loaded_and_returns_with_its_change(tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_text("1")
    files = WatchedFiles([path], interval=0)
    files.read()

    path.unlink()
    assert files.poll() is None
    path.write_text("back")

    assert files.poll() == (b"back",)
