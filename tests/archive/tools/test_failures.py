"""Failing answers: each names its tool and has a code, which the gateway's metrics and audit rows repeat."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pointsman.archive.tools.registry import TOOLS
from tests.archive.code.trees import write
from tests.archive.harness import WAYS, Caller, Json, opened
from tests.e2e.client import assistant
from tests.gateway_process import gateway_process
from tests.router.conftest import audit_rows

WORKSHOP = Path(__file__).parents[2] / "servers" / "workshop.py"
FAILURES: tuple[tuple[str, Json, str], ...] = (
    ("read_file", {"path": "nothing.ts"}, "file_not_found"),
    ("read_file", {"path": ".env"}, "permission_denied"),
    ("read_file", {"path": "/etc/passwd"}, "permission_denied"),
    ("read_file", {}, "invalid_parameters"),
    ("read_file", {"path": "picture.png"}, "not_text"),
    ("read_file", {"path": "broken.ts", "includeDeps": True}, "not_parsed"),
    ("grep_codebase", {"pattern": "("}, "invalid_parameters"),
    ("grep_codebase", {"pattern": "x", "filePattern": "../*"}, "invalid_parameters"),
    ("context_search", {"query": "ab"}, "invalid_parameters"),
    ("context_search", {"query": "anything"}, "no_embeddings"),
    ("documents_search", {"query": 7}, "invalid_parameters"),
    ("documents_search", {"query": "x", "collections": ["nowhere"]}, "not_found"),
    ("documents_search_batch", {"queries": []}, "invalid_parameters"),
    ("documents_list_documents", {"collection": "nowhere"}, "not_found"),
    ("documents_get_document", {"collection": "pointsman", "document": "no.md"}, "not_found"),
    ("documents_get_outline", {"collection": "pointsman", "document": "no.md"}, "not_found"),
    ("documents_get_section", {"collection": "pointsman", "document": "README.md", "section": "zzz"}, "not_found"),
    ("documents_find_related", {"collection": "pointsman", "document": "no.md"}, "not_found"),
    ("search_index", {"query": "x", "index_name": "nowhere"}, "not_found"),
    ("search_add_document", {"doc_id": "x", "content": " "}, "invalid_parameters"),
    ("search_create_index", {"index_name": "default"}, "already_exists"),
    ("search_create_index", {"index_name": "x", "backend": "tape"}, "invalid_parameters"),
    ("searchLocalArchives", {"query": "x", "limit": 0}, "invalid_parameters"),
)


@pytest.fixture(scope="module", params=WAYS)
async def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Caller]:
    folder = tmp_path_factory.mktemp("archive")
    async with opened(request.param, folder, roots={"app": project(folder / "app")}) as caller:
        yield caller


def project(folder: Path) -> Path:
    write(folder, {".env": "SECRET=x\n", "broken.ts": "function ((( {\n"})
    (folder / "picture.png").write_bytes(b"\x89PNG\0")
    return folder


@pytest.mark.parametrize(("name", "arguments", "code"), FAILURES)
async def test_a_failing_answer_names_its_tool_and_has_a_code(
    archive: Caller, name: str, arguments: Json, code: str
) -> None:
    answer = await archive.failure(name, **arguments)
    assert (answer.json["tool"], answer.json["code"]) == (name, code)
    if answer.text.startswith("{"):
        assert json.loads(answer.text) == answer.json


def test_every_tool_that_takes_arguments_is_tried() -> None:
    assert {name for name, _, _ in FAILURES} == {tool.name for tool in TOOLS} - {"documents_list_collections"}


async def test_a_store_that_cannot_be_used_has_a_code_for_every_tool_that_needs_it(tmp_path: Path) -> None:
    (tmp_path / "archive.db").write_text("no database at all " * 100)
    async with opened("modern", tmp_path) as archive:
        for name, arguments in (
            ("documents_list_collections", {}),
            ("searchLocalArchives", {"query": "x"}),
            ("context_search", {"query": "anything"}),
        ):
            answer = await archive.failure(name, **arguments)
            assert (answer.json["tool"], answer.json["code"]) == (name, "store_unavailable")


async def test_without_roots_the_code_tools_are_not_configured(tmp_path: Path) -> None:
    async with opened("modern", tmp_path) as archive:
        answer = await archive.failure("read_file", path="x")
    assert (answer.json["tool"], answer.json["code"]) == ("read_file", "not_configured")


async def test_metrics_and_audit_rows_tell_failures_apart_and_take_no_code_of_a_foreign_server(tmp_path: Path) -> None:
    archive_entry = {
        "bundled": "archive",
        "roots": {"app": str(project(tmp_path / "app"))},
        "env": {"POINTSMAN_ARCHIVE_RATE_LIMITS": '{"grep_codebase": 1}'},
    }
    shop = {"command": sys.executable, "args": ["-S", str(WORKSHOP), str(tmp_path / "trace")]}
    config = {"servers": {"archive": archive_entry, "shop": shop}}
    async with gateway_process(tmp_path, config) as gateway, assistant(gateway) as model:
        for name, arguments, _ in FAILURES:
            if name in ("read_file", "search_index"):
                await model.execute(f"archive:{name}", **arguments)
        for _ in range(2):
            await model.execute("archive:grep_codebase", pattern="x")
        await model.execute("shop:break", code="file_not_found")
        await model.execute("shop:break", code="a label of my own")
        async with httpx2.AsyncClient(timeout=30) as http:
            metrics = (await http.get(f"{gateway.base_url}/metrics", headers=gateway.headers)).text
        rows = await audit_rows(gateway.state_dir, "--outcome", "error")
    assert [row["code"] for row in rows if row["toolKey"] == "archive:read_file"] == [
        code for name, _, code in FAILURES if name == "read_file"
    ]
    assert counted(metrics) == {
        ("archive", "read_file", "file_not_found"): 1,
        ("archive", "read_file", "permission_denied"): 2,
        ("archive", "read_file", "invalid_parameters"): 1,
        ("archive", "read_file", "not_text"): 1,
        ("archive", "read_file", "not_parsed"): 1,
        ("archive", "search_index", "not_found"): 1,
        ("archive", "grep_codebase", "rate_limited"): 1,
        ("shop", "break", "tool_error"): 2,
    }


def counted(metrics: str) -> dict[tuple[Any, ...], float]:
    return {
        tuple(sample.labels[name] for name in ("server", "tool", "code")): sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == "pointsman_calls_total" and sample.labels["outcome"] == "error"
    }
