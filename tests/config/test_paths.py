"""Where things are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.config.paths import find_config, find_search_api_config, state_folder, user_config
from pointsman.config.purpose import is_only_for_search_api
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


def test_the_search_service_looks_for_its_own_file_and_for_a_shared_one(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    def found() -> Path | None:
        return find_search_api_config(None, Settings(), environ, tmp_path)

    folder = user_config(Settings(), environ).parent
    folder.mkdir(parents=True)
    (folder / "pointsman.yaml").write_text("servers: {}\n")
    assert found() is None
    (folder / "pointsman.yaml").write_text("servers: {}\nsearch_api:\n")
    assert found() == folder / "pointsman.yaml"
    (folder / "pointsman.yaml").write_text("servers: [\nsearch_api: {}\n")  # a mistake is reported, not passed over
    assert found() == folder / "pointsman.yaml"
    (folder / "search-api.yaml").touch()
    assert found() == folder / "search-api.yaml"
    (tmp_path / "pointsman.yaml").write_text('{"search_api": {}}')
    assert found() == tmp_path / "pointsman.yaml"
    (tmp_path / "search-api.yaml").touch()
    assert found() == tmp_path / "search-api.yaml"
    assert find_config(None, Settings(), environ, tmp_path) == tmp_path / "pointsman.yaml"
    named = Path("/option.yaml")
    assert find_search_api_config(named, Settings(), environ, tmp_path) == named


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("search_api: {}\ntokens: {}\nprojects: {}\nlimits: {}\n", True),
        ("search_api: {}\nservers:\n  # none yet\n", False),
        ("search_api: {}\nmcpServers: {}\n", False),
        ("search_api: {}\nlisten: {port: 1}\n", False),
        ("tokens: {}\n", False),
        ("- search_api\n", False),
        ("", False),
    ],
)
def test_a_file_is_only_for_the_search_service_if_nothing_in_it_is_for_a_gateway(
    text: str, only: bool, tmp_path: Path
) -> None:
    (tmp_path / "file.yaml").write_text(text)
    assert is_only_for_search_api(tmp_path / "file.yaml") is only
    assert not is_only_for_search_api(tmp_path / "missing.yaml")


def test_folders_follow_xdg_unless_they_are_set(tmp_path: Path, environ: dict[str, str]) -> None:
    assert state_folder(None, Settings(), environ) == tmp_path / "home/.local/state/pointsman"
    xdg = {**environ, "XDG_STATE_HOME": "/xdg/state", "XDG_CONFIG_HOME": "relative"}
    assert state_folder(None, Settings(), xdg) == Path("/xdg/state/pointsman")
    assert user_config(Settings(), xdg) == tmp_path / "home/.config/pointsman/pointsman.yaml"
    set_by_us = Settings(config_dir=Path("/etc/pointsman"), state_dir=Path("/var/lib/pointsman"))
    assert user_config(set_by_us, xdg) == Path("/etc/pointsman/pointsman.yaml")
    assert state_folder(None, set_by_us, xdg) == Path("/var/lib/pointsman")
    assert state_folder(Path("/option"), set_by_us, xdg) == Path("/option")
