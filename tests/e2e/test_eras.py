"""The era matrix: what a server asks in the middle of a call reaches the client that made it, whoever speaks what."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import BOTH_ERAS, Assistant, Mode
from tests.e2e.people import person
from tests.gateway_process import GatewayProcess, gateway_process
from tests.servers.asker_http import asker_http

ASKER = Path(__file__).parents[1] / "servers" / "asker.py"
CELLS = [f"{transport}_{era}" for transport in ("stdio", "http") for era in ("legacy", "modern")]


def stdio_asker(era: str, trace: Path, **settings: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", str(ASKER), era, str(trace)], "era": era, **settings}


@asynccontextmanager
async def all_askers(folder: Path) -> AsyncIterator[tuple[GatewayProcess, Path]]:
    """A gateway in front of four servers: legacy and modern, over stdio and HTTP."""
    trace = folder / "trace"
    async with asker_http("legacy", trace) as legacy, asker_http("modern", trace) as modern:
        servers = {
            "stdio_legacy": stdio_asker("legacy", trace),
            "stdio_modern": stdio_asker("modern", trace),
            "http_legacy": {"url": legacy.url},
            "http_modern": {"url": modern.url},
        }
        async with gateway_process(folder, {"servers": servers}) as gateway:
            yield gateway, trace


@pytest.fixture(scope="module")
async def askers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[GatewayProcess, Path]]:
    """One for all tests that leave nothing behind in it."""
    async with all_askers(tmp_path_factory.mktemp("askers")) as both:
        yield both


def noted(trace: Path, word: str) -> int:
    return sum(line.startswith(word + " ") for line in trace.read_text().splitlines())


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_every_kind_of_question_reaches_the_client_in_every_cell(
    mode: Mode, askers: tuple[GatewayProcess, Path]
) -> None:
    async with person(askers[0], mode) as (ada, model):
        for cell in CELLS:
            assert await model.text(f"{cell}:name", tag=cell) == f"ada:{cell}"
            assert await model.text(f"{cell}:visit", tag=cell) == f"{cell} accept"
            assert await model.text(f"{cell}:think", tag=cell) == f"ada:{cell}"
            assert await model.text(f"{cell}:places", tag=cell) == "file:///ada"
            assert await model.text(f"{cell}:twice", tag=cell) == f"ada:{cell}/1 ada:{cell}/2"
            assert ada.asked == [cell, cell, cell, f"{cell}/1", f"{cell}/2"]
            ada.asked.clear()


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_client_that_cannot_be_asked_gets_a_clear_error_and_the_server_is_told(
    mode: Mode, askers: tuple[GatewayProcess, Path]
) -> None:
    gateway, trace = askers
    async with person(gateway, mode, able=False) as (_, model):
        before = noted(trace, "refused") if trace.exists() else 0
        for count, cell in enumerate(CELLS, before + 1):
            answer = await model.execute(f"{cell}:name", tag=cell)
            assert answer.is_error
            (block,) = answer.content
            assert block.type == "text"
            assert "refused: " in block.text
            assert "elicitation" in block.text
            assert noted(trace, "refused") == count


async def _thirty(gateway: GatewayProcess, server: str, tokens: list[str | None]) -> None:
    """Six clients, half legacy, half modern, five questions each, all at once."""
    async with AsyncExitStack() as stack:
        people = [
            await stack.enter_async_context(
                person(gateway, BOTH_ERAS[number % 2], f"p{number}", token=tokens[number % len(tokens)])
            )
            for number in range(6)
        ]

        async def ask(model: Assistant, tag: str) -> str:
            return await model.text(f"{server}:name", tag=tag)

        async with asyncio.timeout(50):
            answers = await asyncio.gather(*(ask(model, f"{who.name}-{n}") for n in range(5) for who, model in people))
        assert answers == [f"{who.name}:{who.name}-{n}" for n in range(5) for who, _ in people]
        for who, _ in people:
            assert sorted(who.asked) == [f"{who.name}-{n}" for n in range(5)]


async def test_thirty_questions_over_one_shared_http_server_each_reach_their_asker(tmp_path: Path) -> None:
    async with (
        asker_http("legacy", tmp_path / "trace") as http,
        gateway_process(tmp_path, {"servers": {"s": {"url": http.url}}}) as gateway,
    ):
        await _thirty(gateway, "s", [None])


async def test_thirty_questions_over_one_shared_child_each_reach_their_asker(tmp_path: Path) -> None:
    """They take turns, from the very first on: nobody knew that this server asks."""
    async with gateway_process(tmp_path, {"servers": {"s": stdio_asker("legacy", tmp_path / "trace")}}) as gateway:
        await _thirty(gateway, "s", [None])


async def test_thirty_questions_over_children_of_their_own_each_reach_their_asker(tmp_path: Path) -> None:
    """`isolation: per-caller`, with three callers who have two clients each."""
    secrets = [f"ptm_{'x' * 40}{number}" for number in range(3)]
    tokens = {
        f"t{number}": {"sha256": hashlib.sha256(secret.encode()).hexdigest(), "projects": ["*"], "servers": ["*"]}
        for number, secret in enumerate(secrets)
    }
    server = stdio_asker("legacy", tmp_path / "trace", isolation="per-caller")
    config = {"servers": {"s": server}, "tokens": tokens}
    async with gateway_process(tmp_path, config, token=secrets[0]) as gateway:
        await _thirty(gateway, "s", list(secrets))


TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=1",
    "baggage": "user=ada",
}
BLOCKS = ["text", "image", "audio", "resource", "resource_link"]


class Steps:
    def __init__(self) -> None:
        self.heard: list[str | None] = []

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.heard.append(message)


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_progress_log_messages_meta_and_every_kind_of_content_pass_in_every_cell(
    mode: Mode, askers: tuple[GatewayProcess, Path]
) -> None:
    meta: Any = {**TRACE, "com.example/forth": 6, "projectId": ""}
    async with person(askers[0], mode) as (ada, model):
        for cell in CELLS:
            steps = Steps()
            answer = await model.client.call_tool(
                "tool_execute",
                {"toolKey": f"{cell}:report", "arguments": {"tag": cell}},
                progress_callback=steps,
                meta=meta,
            )
            assert not answer.is_error, answer
            assert steps.heard == ["s1", "s2"]
            assert ada.logged == ["a warning"]
            ada.logged.clear()
            assert [block.type for block in answer.content] == BLOCKS
            assert answer.structured_content == {"result": {"n": 1}}
            assert answer.meta is not None
            assert answer.meta["com.example/back"] == 7
            (block, *_) = answer.content
            assert block.type == "text"
            arrived = json.loads(block.text)
            assert {name: arrived[name] for name in TRACE} == TRACE
            assert arrived["com.example/forth"] == 6
            assert not {"token", "projectId"} & set(arrived)


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_client_that_leaves_while_it_is_asked_ends_its_call_and_the_next_one_is_served(
    mode: Mode, tmp_path: Path
) -> None:
    async with all_askers(tmp_path) as (gateway, trace):
        for count, server in enumerate(("stdio_legacy", "http_legacy"), 1):
            async with person(gateway, mode, "bob") as (bob, model):
                bob.silent = True
                await model.text(f"{server}:plain", tag="t")  # so that it is known to ask nothing
                call = asyncio.create_task(model.execute(f"{server}:name", tag="bob"))
                while not bob.asked:
                    await asyncio.sleep(0.02)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            async with person(gateway, mode) as (ada, model):
                if mode == "legacy":  # a modern one may come back for its parked call within `limits.parked_s`
                    assert await model.text(f"{server}:name", tag="t") == "ada:t"
                    assert ada.asked == ["t"]
                    assert noted(trace, "cancelled") + noted(trace, "refused") == count
                assert await model.text(f"{server}:plain", tag="t") == "plain t"
