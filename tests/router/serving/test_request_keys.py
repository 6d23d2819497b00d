"""The keys that seal what clients carry: configured, or made once and kept."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

from pointsman.router.serving.request_keys import FILE, request_keys
from pointsman.router.serving.state_folder import StateFolderError


def test_a_key_is_made_once_and_kept_for_its_owner_only(tmp_path: Path) -> None:
    keys = request_keys((), tmp_path)
    assert len(keys[0]) == 64
    assert request_keys((), tmp_path) == keys
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_two_folders_have_two_keys(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    assert request_keys((), folders[0]) != request_keys((), folders[1])


def test_configured_keys_come_first_and_nothing_is_written(tmp_path: Path) -> None:
    configured = (SecretStr("a" * 32), SecretStr("b" * 32), SecretStr("a" * 32))
    assert request_keys(configured, tmp_path) == ("a" * 32, "b" * 32)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 64, b"a b" * 40])
def test_a_damaged_key_is_said_to_be_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(StateFolderError, match="corrupt"):
        request_keys((), tmp_path)


def test_a_key_that_cannot_be_kept_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(StateFolderError, match="request_keys"):
        request_keys((), tmp_path / "missing")


def test_a_half_written_key_of_a_run_that_died_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f".{FILE}").write_text("half")
    assert len(request_keys((), tmp_path)[0]) == 64
