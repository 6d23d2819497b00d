"""A gateway whose clock, state database or disk is not as it should be keeps what it knows and says what is wrong."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pointsman.router.audit.database import FILE, SCHEMA_VERSION
from tests.gateway_process import GatewayProcess, gateway_process, own_environment
from tests.router.audit.samples import open_log, request, rows
from tests.router.conftest import Shop

LONG_S = 60.0  # against hanging
AHEAD = "import time\nnow = time.time\ntime.time = lambda: now() + 100 * 86_400\n"


async def get(gateway: GatewayProcess, path: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=20) as http:
        return await http.get(gateway.base_url + path, headers=gateway.headers)


async def discover(gateway: GatewayProcess) -> None:
    """One call, which leaves a row."""
    async with httpx2.AsyncClient(timeout=20) as http:
        await Shop(gateway, http, Path()).call("tool_discovery", {"query": ["anything"]})


def moved(state_dir: Path) -> list[str]:
    try:
        with closing(sqlite3.connect(f"file:{state_dir / FILE}?mode=ro", uri=True)) as connection:
            return [name for (name,) in connection.execute("SELECT request_id FROM audit ORDER BY seq")]
    except sqlite3.Error:
        return []  # also while it is set aside, between the file and its successor


async def until_moved(state_dir: Path, count: int) -> None:
    async with asyncio.timeout(LONG_S):
        while not (state_dir / FILE).is_file() or len(moved(state_dir)) < count:
            await asyncio.sleep(0.05)


async def test_a_clock_that_is_ahead_removes_no_row(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    log = open_log(state_dir)
    for name in ("one", "two", "three"):
        log.begin(request(name), "execute", tool_key="a:b", server_id="a").finish("ok")
    log.close()
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock/sitecustomize.py").write_text(AHEAD)
    async with gateway_process(tmp_path, {}, env={"PYTHONPATH": str(tmp_path / "clock")}) as gateway:
        await discover(gateway)
        await until_moved(state_dir, 1)
        async with asyncio.timeout(LONG_S):
            while "check the clock" not in gateway.stderr:
                await asyncio.sleep(0.05)
        await until_moved(state_dir, 4)
    assert [row.request_id for row in rows(state_dir)][:3] == ["one", "two", "three"]


async def doctor(folder: Path, secret: str) -> list[dict[str, str]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "doctor", "--json"),
        *("--config", str(folder / "pointsman.yaml"), "--state-dir", str(folder / "state")),
        cwd=folder,
        env=own_environment(folder) | {"POINTSMAN_TOKEN": secret},
        stdout=asyncio.subprocess.PIPE,
    )
    stdout, _ = await asyncio.wait_for(process.communicate(), LONG_S)
    findings: list[dict[str, str]] = json.loads(stdout)["findings"]
    return findings


def without_table(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "spoil", [without_table, Path.mkdir, os.mkfifo], ids=["its table is gone", "a directory", "a FIFO"]
)
async def test_a_state_database_that_cannot_be_used_is_set_aside_and_said(spoil: Any, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    spoil(state_dir / FILE)
    async with gateway_process(tmp_path, {}) as gateway:
        await discover(gateway)
        await until_moved(state_dir, 1)
        (aside,) = [path for path in state_dir.glob(f"{FILE}.broken-*") if path.name[-1].isdigit()]
        health = (await get(gateway, "/health")).json()
        assert health["ready"] is True
        assert aside.name in health["audit_database"]
        assert str(tmp_path) not in json.dumps(health)
        metrics = (await get(gateway, "/metrics")).text
        assert re.search(r"^pointsman_audit_databases_set_aside 1\.0$", metrics, re.MULTILINE)
        findings = await doctor(tmp_path, gateway.token)
        assert [each for each in findings if each["level"] == "problem" and aside.name in each["message"]]
        aside.rename(tmp_path / "elsewhere")
        assert "audit_database" not in (await get(gateway, "/health")).json()


@pytest.mark.parametrize("spoil", ["drop", "delete", "directory"])
async def test_a_state_database_that_goes_while_in_use_loses_no_later_row(spoil: str, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    database = state_dir / FILE
    async with gateway_process(tmp_path, {}) as gateway:
        await discover(gateway)
        await until_moved(state_dir, 1)
        if spoil == "drop":
            connection = sqlite3.connect(database)
            connection.execute("DROP TABLE audit")
            connection.close()
        else:
            database.unlink()
            if spoil == "directory":
                database.mkdir()
        await discover(gateway)
        await until_moved(state_dir, 1)
        health = (await get(gateway, "/health")).json()
        assert ("audit_database" in health) == (spoil != "delete")
    assert len(moved(state_dir)) == 1
    assert [row.seq for row in rows(state_dir)] == [2]


def _may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False).returncode == 0


@pytest.mark.skipif(not _may_mount(), reason="user namespaces may not mount here")
async def test_a_state_database_that_takes_no_rows_is_said_for_as_long_as_it_does(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    async with gateway_process(tmp_path, {}):
        pass
    change_version(state_dir, 99)  # as a later release leaves it
    async with gateway_process(tmp_path, {}) as gateway, asyncio.timeout(LONG_S):
        await gateway.until_logged("audit rows stay in the journal")
        health = (await get(gateway, "/health")).json()
        assert health["ready"]
        assert "takes no audit rows" in health["audit_rows"]
        findings = await doctor(tmp_path, gateway.token)
        assert any("takes no audit rows" in finding["message"] for finding in findings)
        change_version(state_dir, SCHEMA_VERSION)
        while "audit_rows" in (await get(gateway, "/health")).json():
            await asyncio.sleep(0.1)


def change_version(state_dir: Path, version: int) -> None:
    connection = sqlite3.connect(state_dir / FILE)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


def test_a_journal_that_is_not_a_folder_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("")
    command = (sys.executable, "-P", "-m", "pointsman", "audit", "list", "--state-dir", str(tmp_path))
    ran = subprocess.run(command, capture_output=True, text=True, env=own_environment(tmp_path), timeout=LONG_S)
    assert ran.returncode == 1
    assert "journal is not a folder" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_full_disk_at_the_start_is_a_sentence_and_exit_code_1(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    digest = hashlib.sha256(b"ptm_x").hexdigest()
    (tmp_path / "pointsman.yaml").write_text(json.dumps({"tokens": {"test": {"sha256": digest}}}))
    fill = 'mount -t tmpfs -o size=64k tmpfs "$0"; cd "$0"; printf %064d 1 > request.key; cat /dev/zero > fill'
    done = subprocess.run(
        [
            *("unshare", "-Urm", "sh", "-c", f'({fill}) 2>/dev/null; exec "$@"', str(state_dir)),
            *(sys.executable, "-P", "-m", "pointsman", "serve", "--port", "0"),
            *("--config", str(tmp_path / "pointsman.yaml"), "--state-dir", str(state_dir)),
        ],
        env=own_environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"Could not write to the state folder {state_dir}: No space left on device. "
        "Free some space there, or choose another folder with --state-dir.\n"
    )
