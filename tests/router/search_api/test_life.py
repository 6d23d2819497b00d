"""From the first start to the end: nothing to prepare, changes taken over, a clean end."""

from __future__ import annotations

import asyncio
import re
import signal
import stat
import sys
from pathlib import Path

import httpx2

from pointsman.config.loader import load
from pointsman.config.sample import SEARCH_API, write_sample
from tests.gateway_process import own_environment, write_config
from tests.router.search_api.search_client import LONG_S, TOOLS, Client, digest_of, error_of, open_service
from tests.search_api_process import started
from tests.servers.chat_endpoint import chat_endpoint, selects

BODY = {"query": ["weather"], "tools": TOOLS}


async def test_the_first_start_makes_a_configuration_and_shows_its_token_once(tmp_path: Path) -> None:
    async with started(tmp_path, []) as (process, lines, url):
        said = "\n".join(lines)
        [secret] = set(re.findall(r"ptm_[\w-]{43}", said))
        assert f'cloud_search: {{url: "{url}", token: "{secret}"}}' in said
        file = tmp_path / ".config/pointsman/search-api.yaml"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert secret not in file.read_text()
        async with httpx2.AsyncClient(timeout=LONG_S) as http:
            headers = {"Authorization": f"Bearer {secret}", "X-Pointsman-Project": "whatever"}
            answer = await http.post(f"{url}/catalog/search", json=BODY, headers=headers)
        assert answer.json()["results"][0]["toolKey"] == "sky:get_forecast"
        assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["search-api.yaml"]
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), LONG_S) == 0
    async with started(tmp_path, []) as (_, lines, _):
        assert "ptm_" not in "\n".join(lines)


def test_what_the_first_configuration_shows_in_comments_works_too(tmp_path: Path) -> None:
    path = tmp_path / "pointsman.yaml"
    write_sample(path, SEARCH_API)
    path.write_text(re.sub(r"^( *)# ( *[a-z_]+:)", r"\1\2", path.read_text(), flags=re.MULTILINE))
    config = load(path, {"LLM_KEY": "x"})
    assert config.search_api is not None
    assert config.search_api.listen.port == 3283
    assert config.search_api.llm is not None
    assert set(config.projects) == {"research"}


async def test_a_gateways_own_configuration_serves_as_it_is(tmp_path: Path) -> None:
    config = {"servers": {"clock": {"command": "no-such-program"}}, "listen": {"port": 1}}
    async with open_service(tmp_path, config) as client:
        assert (await client.search("weather"))["results"]


async def test_a_revoked_token_is_refused_and_a_new_one_holds_without_a_restart(tmp_path: Path) -> None:
    async with open_service(tmp_path, provider="bm25") as client:
        assert (await client.post(BODY)).status_code == 200
        write_config(client.service.config_file, {}, "ptm_new")
        await until_status(client, client.service.token, 401)
        assert (await client.post(BODY, token="ptm_new")).status_code == 200


async def test_new_limits_and_another_provider_hold_without_a_restart(tmp_path: Path) -> None:
    async with chat_endpoint(selects("get_forecast")) as model, open_service(tmp_path) as client:
        assert (await client.search("weather"))["provider"] == "bm25+static"
        llm = {"base_url": model.base_url, "model": "m", "key": "sesame"}
        client.service.write_config({"search_api": {"provider": "llm", "llm": llm, "limits": {"tools": 5}}})
        async with asyncio.timeout(LONG_S):
            while (await client.search("weather"))["provider"] != "llm":
                await asyncio.sleep(0.02)
        client.service.write_config({"search_api": {"provider": "bm25", "limits": {"tools": 4}}})
        await until_status(client, client.service.token, 413)
        assert (await client.search("weather", tools=TOOLS[:4]))["provider"] == "bm25"


async def test_a_broken_edit_changes_nothing_and_health_says_so(tmp_path: Path) -> None:
    async with open_service(tmp_path, provider="bm25") as client:
        client.service.write_config({"search_api": {"provider": "llm"}})
        async with asyncio.timeout(LONG_S):
            while "configuration" not in (await client.get("/health", client.service.headers)).json():
                await asyncio.sleep(0.02)
            while "`provider: llm` needs `llm`" not in client.service.stderr:  # read by a task of its own
                await asyncio.sleep(0.02)
        assert (await client.search("weather"))["provider"] == "bm25"


async def test_the_environment_names_host_and_port_and_a_taken_port_is_explained(tmp_path: Path) -> None:
    async with open_service(tmp_path, provider="bm25") as client:
        taken = {"POINTSMAN_PORT": str(client.service.port)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "pointsman", "search-api", "serve"),
            *("--config", str(client.service.config_file)),
            env=own_environment(tmp_path) | taken,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await asyncio.wait_for(process.communicate(), LONG_S)
        assert process.returncode == 1
        assert f"Port {client.service.port} on 127.0.0.1 is taken" in said.decode()


async def until_status(client: Client, token: str, status: int) -> None:
    async with asyncio.timeout(LONG_S):
        while (response := await client.post(BODY, token=token)).status_code != status:
            assert response.status_code == 200
            await asyncio.sleep(0.02)
    assert error_of(response)[0] == status
    assert digest_of(token) not in response.text
