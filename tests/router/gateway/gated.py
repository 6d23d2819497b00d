"""A gateway whose calls need a yes, and those who give it: for tests of the gate."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import types
from mcp.client.context import ClientRequestContext

from pointsman.router.owner.client import ask
from tests.e2e.people import Person
from tests.e2e.test_eras import stdio_asker
from tests.gateway_process import GatewayProcess
from tests.router.conftest import audit_rows, from_file
from tests.router.raw_client import Speaker

SERVERS = ("old", "new")
FORM: dict[str, Any] = {"elicitation": {"form": {}}}
READS, WRITES = {"readOnlyHint": True}, {"destructiveHint": False}


@dataclass
class Judge(Person):
    """Answers the gate's questions with the words it was given, and a server's own with its name."""

    words: list[Any] = field(default_factory=list)  # an answer, or a whole result
    judged: list[str] = field(default_factory=list)  # the questions of the gate

    async def elicited(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        if "answer" not in params.requested_schema["properties"]:
            return await super().elicited(context, params)
        self.judged.append(params.message)
        if self.silent:
            await asyncio.Event().wait()
        word = self.words.pop(0)
        return types.ElicitResult(action="accept", content={"answer": word}) if isinstance(word, str) else word


@dataclass
class Gated:
    gateway: GatewayProcess
    folder: Path

    @property
    def trace(self) -> Path:
        return self.folder / "trace"

    def ran(self, tag: str) -> int:
        """How often a call with this tag reached a server."""
        return self.trace.read_text().splitlines().count(f"began {tag}") if self.trace.exists() else 0

    async def owner(self, operation: str, **parameters: Any) -> Any:
        return await asyncio.to_thread(ask, self.gateway.state_dir, operation, **parameters)

    async def pending(self, tool_key: str, tag: str = "") -> list[dict[str, Any]]:
        """Those that nobody has answered. Other tests may leave some behind, so `tag` is in the arguments."""
        listed = [one for one in (await self.owner("approvals"))["pending"] if one["answer"] is None]
        return [one for one in listed if one["toolKey"] == tool_key and tag in one["arguments"]]

    async def one_pending(self, tool_key: str, tag: str = "") -> dict[str, Any]:
        async with asyncio.timeout(20):
            while not (found := await self.pending(tool_key, tag)):
                await asyncio.sleep(0.02)
        assert len(found) == 1, found
        return found[0]

    async def rows(self, tool_key: str) -> list[tuple[Any, ...]]:
        rows = await audit_rows(self.gateway.state_dir, "--tool", tool_key)
        return [(row["outcome"], row["code"], row.get("confirmed")) for row in rows]


def config_of(folder: Path) -> dict[str, Any]:
    trace = folder / "trace"
    schema = {"type": "object"}
    tools = [
        {"name": "look", "inputSchema": schema, "annotations": READS},
        {"name": "add", "inputSchema": schema, "annotations": WRITES},
        {"name": "wipe", "inputSchema": schema},
        {"name": "refusable", "inputSchema": schema},
        {"name": "announce", "inputSchema": schema, "annotations": READS},
    ]
    return {
        "unassigned": {"confirm": "destructive"},
        "projects": {"flat": {"exposure": "flat", "confirm": ["*:look"]}},
        "servers": {
            "old": stdio_asker("legacy", trace),
            "new": stdio_asker("modern", trace),
            "kept": from_file(folder / "kept.json", "k", {"tools": tools}, trust_annotations=True, pin="off"),
            "pinned": from_file(folder / "pinned.json", "p", {"tools": tools}, trust_annotations=True, pin="first-use"),
            "flat": from_file(folder / "flat.json", "f", {"tools": tools}, trust_annotations=True, projects=["flat"]),
        },
    }


def code_of(result: types.CallToolResult) -> str:
    assert result.is_error
    return str((result.structured_content or {})["error"]["code"])


def executing(tool_key: str, tag: str, previous: dict[str, Any] | None = None, **answer: Any) -> dict[str, Any]:
    """A call, or its retry with one answer to all questions of `previous`."""
    params: dict[str, Any] = {"name": "tool_execute", "arguments": {"toolKey": tool_key, "arguments": {"tag": tag}}}
    if previous is not None:
        given = {key: {"action": "accept", "content": answer} for key in previous["inputRequests"]} if answer else {}
        params |= {"inputResponses": given, "requestState": previous["requestState"]}
    return params


async def parked(one: Speaker, tool_key: str, tag: str) -> dict[str, Any]:
    asked = await one.result("tools/call", executing(tool_key, tag))
    assert is_gate(asked)
    return asked


def is_gate(result: dict[str, Any]) -> bool:
    """Whether a result is the gate's question and nothing else."""
    assert result["resultType"] == "input_required", result
    questions = [one["params"]["message"] for one in result["inputRequests"].values()]
    return len(questions) == 1 and questions[0].startswith("Run `")
