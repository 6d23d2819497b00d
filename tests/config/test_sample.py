"""The first configuration."""

from __future__ import annotations

import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pointsman.config.loader import load
from pointsman.config.sample import write_sample
from pointsman.config.secrets import digest, new_secret


def test_the_sample_is_a_good_configuration_with_the_token_in_it(tmp_path: Path) -> None:
    path = tmp_path / "config" / "pointsman.yaml"
    secret = write_sample(path)
    config = load(path, {})
    assert config.servers["archive"].bundled == "archive"
    assert config.tokens["first"].sha256 == digest(secret)
    assert config.tokens["first"].projects == config.tokens["first"].servers == ("*",)
    assert secret not in path.read_text()


def test_what_the_sample_shows_in_comments_works_too(tmp_path: Path) -> None:
    path = tmp_path / "pointsman.yaml"
    write_sample(path)
    path.write_text(re.sub(r"^( *)# ( *[a-z_]+:)", r"\1\2", path.read_text(), flags=re.MULTILINE))
    config = load(path, {"TRACKER_TOKEN": "x"})
    assert set(config.servers) == {"archive", "time", "tracker"}
    assert set(config.projects) == {"research"}


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "config" / "pointsman.yaml"
    write_sample(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_configuration_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "pointsman.yaml"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        write_sample(path)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_of_two_first_starts_at_once_one_writes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "pointsman.yaml"

    def start() -> str | None:
        try:
            return write_sample(path)
        except FileExistsError:
            assert load(path, {}).tokens  # whoever comes second finds a whole file
            return None

    with ThreadPoolExecutor(8) as pool:
        secrets = [secret for secret in pool.map(lambda _: start(), range(8)) if secret]
    assert len(secrets) == 1
    assert load(path, {}).tokens["first"].sha256 == digest(secrets[0])


def test_secrets_are_long_and_never_the_same() -> None:
    one, other = new_secret(), new_secret()
    assert one.startswith("ptm_")
    assert len(one) == len("ptm_") + 43
    assert one != other
