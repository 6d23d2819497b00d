"""Where things are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.config.paths import find_config, state_folder, user_config
from pointsman.config.settings import Settings


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


def test_the_nearest_configuration_holds(tmp_path: Path, environ: dict[str, str]) -> None:
    users = user_config(Settings(), environ)
    assert users == tmp_path / "home/.config/pointsman/pointsman.yaml"
    assert find_config(None, Settings(), environ, tmp_path) is None
    users.parent.mkdir(parents=True)
    users.touch()
    assert find_config(None, Settings(), environ, tmp_path) == users
    here = tmp_path / "pointsman.yaml"
    here.touch()
    assert find_config(None, Settings(), environ, tmp_path) == here
    named = Settings(config=Path("/named/by/environment.yaml"))
    assert find_config(None, named, environ, tmp_path) == Path("/named/by/environment.yaml")
    assert find_config(Path("/option.yaml"), named, environ, tmp_path) == Path("/option.yaml")


def test_folders_follow_xdg_unless_they_are_set(tmp_path: Path, environ: dict[str, str]) -> None:
    assert state_folder(None, Settings(), environ) == tmp_path / "home/.local/state/pointsman"
    xdg = {**environ, "XDG_STATE_HOME": "/xdg/state", "XDG_CONFIG_HOME": "relative"}
    assert state_folder(None, Settings(), xdg) == Path("/xdg/state/pointsman")
    assert user_config(Settings(), xdg) == tmp_path / "home/.config/pointsman/pointsman.yaml"
    set_by_us = Settings(config_dir=Path("/etc/pointsman"), state_dir=Path("/var/lib/pointsman"))
    assert user_config(set_by_us, xdg) == Path("/etc/pointsman/pointsman.yaml")
    assert state_folder(None, set_by_us, xdg) == Path("/var/lib/pointsman")
    assert state_folder(Path("/option"), set_by_us, xdg) == Path("/option")
