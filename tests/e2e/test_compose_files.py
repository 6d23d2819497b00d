"""The compose files agree with the gateway, and with the proxy's configuration. `.ci/compose` starts them for real."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pointsman.config.loader import load
from pointsman.config.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
FILES = ("docker-compose.yml", "compose.scale.yml")
PROXY = ROOT / "compose/haproxy.cfg"
SECRETS = {"request_key": "k" * 64, "database_password": "d" * 64}
IMAGE_VARIABLES = {"POINTSMAN_IMAGE"}  # read by no setting: it names the image in messages


def read(name: str) -> dict[str, Any]:
    data = YAML(typ="safe").load((ROOT / name).read_text())
    assert isinstance(data, dict)
    return data


def gateways() -> dict[str, dict[str, Any]]:
    """The services of the team's file that serve: those with the secret key."""
    services = read("compose.scale.yml")["services"]
    return {name: service for name, service in services.items() if "request_key" in service.get("secrets", ())}


def proxy_values(directive: str) -> list[str]:
    return re.findall(rf"^  {directive} (.*?)(?:\s+#.*)?$", PROXY.read_text(), re.MULTILINE)


def seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


@pytest.mark.parametrize("file", FILES)
def test_variables_of_the_image_and_of_services_are_settings(file: str) -> None:
    named = {name for service in read(file)["services"].values() for name in service.get("environment", {})}
    named |= set(re.findall(rf"\b({PREFIX}\w+)=", (ROOT / "Dockerfile").read_text()))
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    assert {name for name in named if name.startswith(PREFIX)} - known <= IMAGE_VARIABLES


@pytest.mark.parametrize("file", FILES)
def test_what_services_mount_and_need_is_declared(file: str) -> None:
    whole = read(file)
    for service in whole["services"].values():
        assert set(service.get("secrets", ())) <= set(whole.get("secrets", ()))
        assert set(service.get("depends_on", ())) <= set(whole["services"])
        for mount in service.get("volumes", ()):
            source = mount.partition(":")[0]
            if source.startswith("./"):
                assert (ROOT / source).is_file()
            elif not source.startswith("${"):
                assert source in whole["volumes"]


@pytest.mark.parametrize("file", FILES)
def test_ports_are_open_on_this_machine_only(file: str) -> None:
    ports = [port for service in read(file)["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_passwords_of_the_team_are_in_no_environment() -> None:
    for service in read("compose.scale.yml")["services"].values():
        for name, value in service.get("environment", {}).items():
            assert name.endswith("_FILE") or not re.search("PASSWORD|KEY|SECRET|TOKEN", name), f"{name}={value}"


def test_each_gateway_of_the_team_has_a_state_folder_of_its_own_and_one_configuration() -> None:
    mounts = [tuple(mount.split(":")[:2]) for service in gateways().values() for mount in service["volumes"]]
    folders = [source for source, target in mounts if target == "/var/lib/pointsman"]
    assert len(set(folders)) == len(folders) == len(gateways()) == 3
    assert {source for source, target in mounts if target == "/etc/pointsman"} == {"configuration"}


def test_the_proxy_knows_the_gateways_of_the_team() -> None:
    assert proxy_values("server") == [f"{name} {name}:3282" for name in gateways()]


def test_the_proxy_repeats_only_what_did_not_run() -> None:
    assert proxy_values("retry-on") == ["conn-failure 503"]


def test_the_proxy_ends_calls_whose_client_has_gone() -> None:
    assert "abortonclose" in proxy_values("option")


def test_the_first_configuration_of_the_team_is_valid(tmp_path: Path) -> None:
    pytest.importorskip("psycopg_pool")
    file = tmp_path / "pointsman.yaml"
    file.write_text((ROOT / "compose/pointsman.yaml").read_text().replace("/run/secrets", str(tmp_path)))
    for name, value in SECRETS.items():
        (tmp_path / name).write_text(f"{value}\n")
    config = load(file, {})
    assert config.state.database is not None
    address = config.state.database.get_secret_value()
    assert address == f"postgresql://pointsman:{SECRETS['database_password']}@database/pointsman"
    assert [key.get_secret_value() for key in config.state.request_keys] == [SECRETS["request_key"]]
    drain_s = config.listen.drain_s
    assert drain_s is not None
    [check] = [value for value in proxy_values("default-server") if "check" in value]
    every_s = int(re.findall(r"inter (\d+)s", check)[0])
    assert 2 * every_s < drain_s, "a proxy has to see that a gateway drains"
    for name, service in gateways().items():
        assert seconds(service["stop_grace_period"]) >= drain_s + 15, f"{name} would be killed with calls under way"


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="HAProxy is not installed")
def test_haproxy_accepts_its_configuration() -> None:
    checked = subprocess.run(["haproxy", "-c", "-f", str(PROXY)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
