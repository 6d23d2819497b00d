"""Which store the bundled archive of a gateway works on, and who may read it."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.gateway_process import gateway_process, own_environment, write_config
from tests.router.conftest import Shop

ARCHIVE = {"bundled": "archive", "env": {"POINTSMAN_ARCHIVE_EMBEDDINGS": "none"}}
LIMIT_S = 60


def pointsman(folder: Path, *args: str, umask: int = 0o022, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "pointsman", *args],
        cwd=folder,
        env=own_environment(folder) | env,
        umask=umask,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


async def collections(shop: Shop, server_id: str = "archive") -> str:
    return str(await shop.execute(f"{server_id}:documents_list_collections"))


async def test_the_server_and_the_command_use_the_store_that_the_environment_names(tmp_path: Path) -> None:
    store = tmp_path / "elsewhere" / "notes.db"
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# Lighthouses\n\nThey stand by the sea.\n")
    config = {"servers": {"archive": ARCHIVE}}
    write_config(tmp_path / "pointsman.yaml", config, "ptm_" + "x" * 43)
    done = await asyncio.to_thread(pointsman, tmp_path, "archive", "ingest", "notes", SEARCH_DB_PATH=str(store))
    assert done.returncode == 0, done.stderr
    env = {"SEARCH_DB_PATH": str(store)}
    async with gateway_process(tmp_path, config, env=env) as gateway, httpx2.AsyncClient(timeout=LIMIT_S) as http:
        listed = await collections(Shop(gateway, http, tmp_path))
    assert "'notes'" in listed
    assert store.exists()
    assert not list((tmp_path / "state").glob("archive-*"))


def test_the_gateway_refuses_one_variable_for_several_archives_and_says_what_to_write(tmp_path: Path) -> None:
    write_config(tmp_path / "pointsman.yaml", {"servers": {"red": ARCHIVE, "blue": ARCHIVE}}, "ptm_" + "x" * 43)
    refused = pointsman(tmp_path, "serve", "--port", "0", "--state-dir", "state", SEARCH_DB_PATH="/srv/notes.db")
    assert refused.returncode == 2
    assert "servers.red: SEARCH_DB_PATH" in refused.stderr
    assert "archives red, blue" in refused.stderr
    assert "`db: /srv/notes.db`" in refused.stderr


def modes(folder: Path) -> dict[str, int]:
    """Of a folder and of all in it."""
    found = [folder, *folder.rglob("*")]
    return {str(each.relative_to(folder.parent)): stat.S_IMODE(each.stat().st_mode) for each in found}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o177])
def test_the_command_makes_a_private_store(tmp_path: Path, umask: int) -> None:
    made = tmp_path / "deep" / "er"
    code = (
        "import sys, pathlib, os; from pointsman.archive.store.sqlite.storage import SqliteStorage\n"
        "storage = SqliteStorage(pathlib.Path(sys.argv[1]))\n"
        "print(os.path.exists(sys.argv[1] + '-wal'), flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(made / "a.db")],
        umask=umask,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        found = modes(tmp_path / "deep")
    finally:
        process.communicate()
    assert {name: mode for name, mode in found.items() if ".db" not in name} == {"deep": 0o700, "deep/er": 0o700}
    files = {name: mode for name, mode in found.items() if ".db" in name}
    assert set(files) == {"deep/er/a.db", "deep/er/a.db-wal", "deep/er/a.db-shm"}
    assert set(files.values()) == {0o600}


async def test_the_server_makes_a_private_store_and_tightens_an_old_one(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    old.touch()
    old.chmod(0o644)
    servers = {"new": {**ARCHIVE, "db": "made/new.db"}, "old": {**ARCHIVE, "db": str(old)}}
    before = os.umask(0)
    try:
        async with (
            gateway_process(tmp_path, {"servers": servers}) as gateway,
            httpx2.AsyncClient(timeout=LIMIT_S) as http,
        ):
            shop = Shop(gateway, http, tmp_path)
            await collections(shop, "new")
            await collections(shop, "old")
            found = modes(tmp_path / "made")
            kept = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.glob("old.db*")}
    finally:
        os.umask(before)
    assert found.pop("made") == 0o700
    assert set(found) >= {"made/new.db", "made/new.db-wal"}
    assert set(found.values()) == {0o600}
    assert set(kept.values()) == {0o600}
