"""PostgreSQL stops and comes back: store tools say so at once, code tools go on, and all work again by themselves."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.archive.harness import Answer, Caller, over_stdio
from tests.postgres import Postgres

pytestmark = pytest.mark.anyio

MOST_S = 60.0
AWAY = "The archive's store is away"


def environment(postgres: Postgres, folder: Path) -> dict[str, str]:
    (folder / "app").mkdir()
    (folder / "app" / "main.py").write_text("def needle(): ...\n")
    return {
        "SEARCH_DB_PATH": postgres.url(),
        "POINTSMAN_ARCHIVE_ROOTS": f'{{"app": "{folder / "app"}"}}',
        "POINTSMAN_ARCHIVE_EMBEDDINGS": "none",
    }


async def until_it_works(archive: Caller) -> Answer:
    end = time.monotonic() + MOST_S
    while (answer := await archive.call("documents_list_collections")).failed:
        assert AWAY in answer.text
        assert time.monotonic() < end
    return answer


async def code_tools_work(archive: Caller) -> None:
    assert "needle" in (await archive.call("read_file", {"path": "main.py"})).text
    assert (await archive.result("grep_codebase", pattern="needle"))["totalMatches"] == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_while_it_is_away_tools_answer_in_words_and_then_work_again(
    own_postgres: Postgres, tmp_path: Path, how: signal.Signals
) -> None:
    async with over_stdio("modern", environment(own_postgres, tmp_path)) as archive:
        assert "pointsman" in (await until_it_works(archive)).text
        own_postgres.stop(how)
        await archive.failure("documents_search", query="token")  # finds out
        for tool, arguments in (
            ("documents_search", {"query": "token"}),
            ("documents_list_collections", {}),
            ("search_index", {"query": "token"}),
            ("context_search", {"query": "token"}),
            ("searchLocalArchives", {"query": "token"}),
        ):
            answer = await archive.failure(tool, **arguments)
            assert "away" in answer.text, answer.text
            assert "Try again" in answer.text
        await code_tools_work(archive)
        own_postgres.start()
        await until_it_works(archive)
        assert (await archive.result("documents_search", query="token"))["results"]
        await code_tools_work(archive)


async def test_an_archive_that_starts_before_postgresql_works_when_it_is_there(
    own_postgres: Postgres, tmp_path: Path
) -> None:
    own_postgres.stop()
    async with over_stdio("modern", environment(own_postgres, tmp_path)) as archive:
        answer = await archive.failure("documents_list_collections")
        assert AWAY in answer.text
        await code_tools_work(archive)
        own_postgres.start()
        await until_it_works(archive)
        assert (await archive.result("documents_search", query="token"))["results"]
