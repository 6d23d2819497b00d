"""Gateways on one PostgreSQL have one archive: what is added through one is found through all, and counted by all."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_process import GatewayProcess
from tests.postgres import Postgres
from tests.router.peers.cluster import Cluster, cluster
from tests.router.raw_client import speaker

pytestmark = pytest.mark.replicas

LONG_S = 120.0
LIMIT = 30  # calls of `search_index` a minute
PASSWORD = "hunter2-secret"


@asynccontextmanager
async def archives(folder: Path, postgres: Postgres, count: int) -> AsyncIterator[Cluster]:
    database = postgres.new_database().replace(
        "postgres@", f"postgres:{PASSWORD}@"
    )  # which the server does not ask for
    servers = {
        "archive": {"bundled": "archive", "env": {"POINTSMAN_ARCHIVE_RATE_LIMITS": f'{{"search_index": {LIMIT}}}'}}
    }
    async with asyncio.timeout(LONG_S), cluster(folder, count, database=database, servers=servers) as replicas:
        yield replicas


async def call(gateway: GatewayProcess, tool: str, **arguments: Any) -> dict[str, Any]:
    async with speaker(gateway, "modern") as one:
        answer = await one.call("tool_execute", {"toolKey": f"archive:{tool}", "arguments": arguments})
        result: dict[str, Any] = answer["structuredContent"]["result"]
        return result


async def test_what_is_added_through_one_gateway_is_found_through_the_other(postgres: Postgres, tmp_path: Path) -> None:
    async with archives(tmp_path, postgres, 2) as replicas:
        first, second = replicas.gateways
        added = await call(first, "search_add_document", doc_id="sea", content="The harbour freezes in winter.")
        assert added["status"] == "indexed"
        found = await call(second, "search_index", query="harbour")
        assert [each["doc_id"] for each in found["results"]] == ["sea"]
        await _ingested(first, tmp_path / "documents")
        found = await call(second, "documents_search", query="lighthouse keeper", collections=["coast"])
        assert [each["documentId"] for each in found["results"]] == ["keeper.md"]
        for gateway in replicas.gateways:
            assert list(gateway.state_dir.glob("archive-*.db")) == []
            shown = b"".join(file.read_bytes() for file in gateway.state_dir.rglob("*") if file.is_file())
            assert PASSWORD.encode() not in shown
            assert PASSWORD not in _command_lines() + gateway.stderr


async def _ingested(gateway: GatewayProcess, folder: Path) -> None:
    """The command finds the store as the gateway does."""
    folder.mkdir()
    (folder / "keeper.md").write_text("# Keeper\n\nThe lighthouse keeper counts ships at night.\n")
    command = ("archive", "ingest", str(folder), "--collection", "coast", "--config", str(gateway.config_file))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", *command, "--state-dir", str(gateway.state_dir)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


def _command_lines() -> str:
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(process.read_bytes().decode(errors="replace"))
        except OSError:  # it has ended
            continue
    return "\n".join(lines)


async def test_a_limit_over_three_archives_allows_what_one_allows(postgres: Postgres, tmp_path: Path) -> None:
    async with archives(tmp_path, postgres, 3) as replicas:

        async def one_by_one(gateway: GatewayProcess) -> list[str | None]:
            return [(await call(gateway, "search_index", query="harbour")).get("code") for _ in range(LIMIT // 2)]

        codes = [*itertools.chain(*await asyncio.gather(*map(one_by_one, replicas.gateways)))]
        assert (codes.count(None), codes.count("rate_limited")) == (LIMIT, LIMIT // 2)
