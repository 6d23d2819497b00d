"""`pointsman doctor` as a person and a program see it."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.model import GatewayConfig
from pointsman.config.secrets import digest
from pointsman.router.doctor.examination import examine
from pointsman.router.doctor.findings import Finding, Inspected
from tests.gateway_process import gateway_process, own_environment
from tests.servers.search_service import (
    TOKEN,
    Asked,
    Behave,
    answer,
    http,
    names_the_first_tool,
    nobody_listens,
    says_nothing,
    search_service,
    sends,
)


@dataclass(frozen=True)
class Told:
    code: int
    stdout: str
    stderr: str

    def findings(self, check: str) -> list[tuple[str, str]]:
        listed = json.loads(self.stdout)["findings"]
        return [(each["level"], each["message"]) for each in listed if each["check"] == check]


TOKENS = {"test": {"sha256": digest("ptm_test"), "projects": ["*"], "servers": ["*"]}}


async def doctor(folder: Path, config: dict[str, Any] | str | None, *args: str, **environ: str) -> Told:
    if config is not None:
        (folder / "pointsman.yaml").write_text(config if isinstance(config, str) else json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "doctor", "--state-dir", str(folder / "state"), *args),
        cwd=folder,
        env=own_environment(folder) | environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    assert process.returncode is not None
    return Told(process.returncode, stdout.decode(), stderr.decode())


def cloudy(url: str, timeout_s: float = 20, **more: Any) -> dict[str, Any]:
    cloud_search = {"url": url, "token": TOKEN, "timeout_s": timeout_s}
    return {"unassigned": {"optimization": "cloud"}, "cloud_search": cloud_search, **more}


async def test_where_only_the_gateway_is_missing_it_says_so_on_stdout(tmp_path: Path) -> None:
    told = await doctor(tmp_path, {"servers": {}, "tokens": TOKENS, "listen": {"port": 0}})
    assert (told.code, told.stderr) == (1, "")
    assert [line.split()[:2] for line in told.stdout.splitlines()] == [["ok", "configuration"], ["problem", "gateway"]]
    assert "`pointsman serve` starts one" in told.stdout


async def test_a_broken_configuration_is_a_problem_and_the_rest_is_looked_at_all_the_same(tmp_path: Path) -> None:
    told = await doctor(tmp_path, "servers: {time: {comand: uvx}}", "--json")
    assert told.code == 1
    assert json.loads(told.stdout)["ok"] is False
    [(level, message)] = told.findings("configuration")
    assert level == "problem"
    assert "servers.time.comand: unknown key (did you mean `command`?)" in message
    assert [level for level, _ in told.findings("gateway")] == ["problem"]


async def test_without_a_configuration_the_next_step_is_named(tmp_path: Path) -> None:
    told = await doctor(tmp_path, None)
    assert told.code == 1
    assert "Run `pointsman serve` to create one" in told.stdout


async def test_cloud_search_that_is_wanted_but_not_configured_is_a_problem(tmp_path: Path) -> None:
    config = {"projects": {"red": {"optimization": "cloud"}}, "unassigned": {"optimization": "cloud"}}
    told = await doctor(tmp_path, config, "--json")
    assert told.code == 1
    [(level, message)] = told.findings("configuration")
    assert level == "problem"
    assert message.startswith("`projects.red.optimization`, `unassigned.optimization`: `cloud` needs `cloud_search`")


async def looked_at(config: dict[str, Any]) -> Finding:
    """What is found of the search service."""
    patient = Inspected(GatewayConfig.model_validate(config), (), Path("pointsman.yaml"), Path("nowhere"))
    [finding] = [finding for finding in await examine(patient) if finding.check == "cloud_search"]
    return finding


async def test_a_service_that_nobody_uses_is_not_asked() -> None:
    async with search_service(names_the_first_tool) as service:
        finding = await looked_at(cloudy(service.url) | {"unassigned": {}})
    assert finding.level == "note"
    assert "no project has `optimization: cloud`" in finding.message
    assert service.asked == []


async def test_the_service_is_asked_once_for_each_project_that_uses_it(tmp_path: Path) -> None:
    async def refuses_red(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.headers.get("x-pointsman-project") == "red":
            writer.write(http(b"{}", "403 Forbidden"))
        else:
            await names_the_first_tool(asked, writer)

    projects = {"red": {"optimization": "cloud"}, "blue": {"optimization": "cloud"}, "plain": {}}
    async with search_service(refuses_red) as service:
        told = await doctor(tmp_path, cloudy(service.url, projects=projects), "--json")
    assert (told.code, told.stderr) == (1, "")
    assert [asked.headers.get("x-pointsman-project") for asked in service.asked] == ["red", "blue", None]
    refused, *well = told.findings("cloud_search")
    assert refused[0] == "problem"
    assert refused[1].startswith("Asked for project `red`, the search service refuses the gateway's credential")
    assert "Configuration error: the projects of `cloud_search.token` do not include" in refused[1]
    assert [level for level, _ in well] == ["ok", "ok"]
    assert "answered in" in well[0][1]
    assert TOKEN not in told.stdout


@pytest.mark.parametrize(
    ("behave", "words"),
    [
        (sends(http(b"{}", "401 No")), "Configuration error: `cloud_search.token` is wrong or revoked"),
        (sends(http(b"{}", "404 No")), "Configuration error: `cloud_search.url` is wrong"),
        (sends(http(b"{}", "500 No")), "answered with HTTP 500. Its operator should look at its log"),
        (sends(answer(("shop:explode", 1.0))), "named only tools that it was not given"),
        (says_nothing, "gave no answer within 0.5 s. It is overloaded or hangs, or `cloud_search.timeout_s`"),
    ],
)
async def test_what_is_wrong_with_the_service_is_told_with_the_next_step(behave: Behave, words: str) -> None:
    async with search_service(behave) as service:
        finding = await looked_at(cloudy(service.url, timeout_s=0.5 if behave is says_nothing else 20))
    assert finding.level == "problem"
    assert words in finding.message


async def test_a_service_that_is_not_there_is_told() -> None:
    async with nobody_listens() as url:
        finding = await looked_at(cloudy(url))
    assert finding.level == "problem"
    assert "refused the connection. Look at `cloud_search.url`" in finding.message


async def test_the_gateway_that_runs_is_asked_how_it_is(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {"servers": {}}) as gateway:
        told = await doctor(tmp_path, None, "--json", POINTSMAN_TOKEN=gateway.token)
        assert told.code == 0
        [(level, message)] = told.findings("gateway")
        assert (level, message) == ("ok", f"The gateway on {gateway.url} (process {gateway.pid}) is ready.")
        wrong = await doctor(tmp_path, None, "--json", POINTSMAN_TOKEN="ptm_nobodys")
        assert wrong.code == 1
        assert "does not accept the token in POINTSMAN_TOKEN" in wrong.findings("gateway")[0][1]
        gateway.write_config({"servers": {"gone": {"command": "no-such-program-anywhere"}}})
        async with asyncio.timeout(60):
            while "Server `gone` does not run" not in told.findings("servers")[0][1]:
                told = await doctor(tmp_path, None, "--json", POINTSMAN_TOKEN=gateway.token)
        assert told.code == 1


async def test_servers_of_all_projects_are_looked_at_as_the_owner(tmp_path: Path) -> None:
    gone = {"command": "no-such-program-anywhere"}
    config = {
        "servers": {"paint": {**gone, "projects": ["red", "blue"]}, "ink": {**gone, "projects": ["blue"]}},
        "projects": {"red": {}, "blue": {}, "green": {}},
    }
    async with gateway_process(tmp_path, config):
        told = await doctor(tmp_path, None, "--json")
    assert told.code == 1
    assert [message.partition(" does")[0] for _, message in told.findings("servers")] == [
        "Server `paint`",
        "Server `ink`",
    ]
