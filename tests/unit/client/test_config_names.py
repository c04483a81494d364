"""Names in the operator's section of a client configuration: development only, and only when the file says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from qim_client.config import ClientConfig, ClientConfigError

OPERATOR = '[operator]\nadmin = "127.0.0.1:1"\ntenant = 1\ncert = "c"\nkey = "k"\nca = "a"\n'


@pytest.mark.parametrize(("line", "names"), [("", False), ('names = "development"\n', True)])
def test_names_stand_for_ids_only_where_the_file_says_so(tmp_path: Path, line: str, *, names: bool) -> None:
    path = tmp_path / "client.toml"
    path.write_text(OPERATOR + line)
    assert ClientConfig.load(path).require_operator().development_names is names


@pytest.mark.parametrize("value", ['"production"', '""', "true", "1"])
def test_another_word_is_refused_with_what_to_write(tmp_path: Path, value: str) -> None:
    path = tmp_path / "client.toml"
    path.write_text(f"{OPERATOR}names = {value}\n")
    with pytest.raises(ClientConfigError, match="names"):
        ClientConfig.load(path)
