"""The clients' own tool search: Claude Code and Codex, with a scripted model, over `exposure: flat`.

The scripted model passes each request of a sample to the client's search and reads the tools that come back. The
clients are the real programs from `make clients`.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from bench.gateway import measured_gateway
from bench.quality.metrics import DEPTH, Figures, judge, mean
from bench.quality.over_gateway import served
from bench.quality.served import by_server
from bench.quality.sets import Asked, ToolSet
from pointsman.providers.base import SearchProvider, SearchRequest
from pointsman.providers.text import STOP_WORDS
from tests.e2e.agents.model import Searches, serving
from tests.e2e.agents.programs import BIN, FOLDER, Places, Run, claude_code, codex, run
from tests.gateway_process import GatewayProcess

SAMPLE = 100
SEED = 13
SESSION_REQUESTS = 50  # a client sends its whole history with each request
LIST_TOOLS = 2_000  # Codex 0.166 refuses a server that lists more than 2,048 tools, so it gets the set in parts
PREFIX_CHARS = 60
ALL = "all"  # the project that has the whole set
START_S = 120
SEARCHING_MODEL = "gpt-5.5"  # Codex has a search for models that can use it

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Client:
    """A client with a tool search of its own."""

    name: str
    program: str
    package: str
    start: Callable[[Sequence[str], Places, str], Run]  # the projects with the parts of the set, and the prompt
    arguments: Json  # of its search, besides the query
    names: Callable[[str], Iterator[tuple[str, str]]]  # an answer's tools: the server in its settings, and the tool

    @property
    def version(self) -> str | None:
        """None if it is not installed."""
        manifest = FOLDER / "node_modules" / self.package / "package.json"
        if not manifest.exists() or not (BIN / self.program).exists():
            return None
        return str(json.loads(manifest.read_bytes())["version"])


@dataclass(frozen=True, slots=True)
class Found:
    """What a search returned for a sample of requests."""

    figures: Figures
    most: int  # results in the longest answer


def sample(tools: ToolSet) -> list[Asked]:
    """Drawn at random, the same requests each time."""
    return random.Random(SEED).sample(tools.asked, min(SAMPLE, len(tools.asked)))


def as_keywords(asked: Asked) -> Asked:
    """The request without stop words, as a model may shorten it for a search by words."""
    kept = [word for word in re.findall(r"[\w'-]+", asked.query) if word.lower() not in STOP_WORDS]
    return Asked(" ".join(kept) or asked.query, asked.wanted)


async def through_provider(provider: SearchProvider, tools: ToolSet, asked: Sequence[Asked]) -> Found:
    answers = []
    for each in asked:
        hits = await provider.search(SearchRequest((each.query,), None, tools.documents, DEPTH))
        answers.append([hit.tool_key for hit in hits])
    return _judged(asked, answers)


async def through_clients(
    clients: Sequence[Client], folder: Path, tools: ToolSet, forms: Mapping[str, Sequence[Asked]]
) -> dict[tuple[str, str], Found]:
    """What each client finds for each form of the requests, over one gateway."""
    servers = by_server(list(tools.tools))
    prefixes = prefixes_of(list(servers))
    projects = projects_of({server: len(own) for server, own in servers.items()})
    keys = {_plain(prefixes[one["server"]] + one["name"]): f"{one['server']}:{one['name']}" for one in tools.tools}
    found = {}
    async with served(folder / tools.name / "tools.jsonl") as port:
        entries = {
            f"s{number}": {
                "url": f"http://127.0.0.1:{port}/{number}/mcp",
                "name": server,
                "prefix": prefixes[server],
                "projects": [ALL, projects[server]],
            }
            for number, server in enumerate(servers)
        }
        parts = sorted(set(projects.values()))
        settings = {name: {"exposure": "flat"} for name in (ALL, *parts)}
        async with measured_gateway(entries, {"list_max_age_s": 3600}, projects=settings) as gateway:
            for client, (form, asked) in product(clients, forms.items()):
                answers = await _ask(client, gateway, parts, [each.query for each in asked])
                found[client.name, form] = _judged(asked, [_keys(client, answer, keys) for answer in answers])
    return found


def _judged(asked: Sequence[Asked], answers: Sequence[Sequence[str]]) -> Found:
    figures = mean(judge(each, hits) for each, hits in zip(asked, answers, strict=True))
    return Found(figures, max(len(hits) for hits in answers))


def prefixes_of(servers: Sequence[str]) -> dict[str, str]:
    """The servers' names as prefixes, so that a client's search has them, too."""
    prefixes: dict[str, str] = {}
    for server in servers:
        prefix = _plain(server)[:PREFIX_CHARS] + "__"
        taken = prefix in prefixes.values()
        prefixes[server] = f"{len(prefixes)}_{prefix}" if taken else prefix
    return prefixes


def projects_of(sizes: Mapping[str, int]) -> dict[str, str]:
    """Servers in their order, distributed to projects whose lists Codex accepts."""
    projects: dict[str, str] = {}
    part = size = 0
    for server, count in sizes.items():
        if size and size + count > LIST_TOOLS:
            part, size = part + 1, 0
        size += count
        projects[server] = f"part{part}"
    return projects


async def _ask(client: Client, gateway: GatewayProcess, parts: Sequence[str], requests: Sequence[str]) -> list[str]:
    """The answers of the client's search, some requests to a session."""
    answers: list[str] = []
    for start in range(0, len(requests), SESSION_REQUESTS):
        some = requests[start : start + SESSION_REQUESTS]
        with (
            tempfile.TemporaryDirectory(prefix="pointsman-client-") as folder,
            serving(Searches(list(some), client.arguments)) as model,
        ):
            places = Places(gateway.base_url, gateway.token, model.url, Path(folder, "home"), Path(folder, "work"))
            await run(partial(client.start, parts), places, "TASK: search for each request")
            results = max((turn.results for turn in model.turns), key=len)
        if len(results) != len(some):
            raise RuntimeError(f"{client.name} answered {len(results)} of {len(some)} searches")
        answers += [text for _, text in results]
    return answers


def _keys(client: Client, answer: str, keys: Mapping[str, str]) -> list[str]:
    """The tools of an answer; those of the client itself keep their places.

    Raises KeyError for a tool that is not in the set: the name that the client gave it is then not understood here.
    """
    return [keys[_plain(tool)] if server.startswith("pointsman") else tool for server, tool in client.names(answer)]


def _plain(name: str) -> str:
    """A name as all clients show it: they replace characters that their models' API rejects."""
    return re.sub(r"[^A-Za-z0-9]", "_", name)


def _start_claude_code(parts: Sequence[str], places: Places, prompt: str) -> Run:
    return claude_code(replace(places, gateway_url=f"{places.gateway_url}/projects/{ALL}/mcp"), prompt)


def _start_codex(parts: Sequence[str], places: Places, prompt: str) -> Run:
    """With a server in its settings for each part of the set, and the first request only once all of them are ready."""
    first, *others = [f"{places.gateway_url}/projects/{part}/mcp" for part in parts]
    started = codex(SEARCHING_MODEL)(replace(places, gateway_url=first), prompt)
    ready = f"required = true\nstartup_timeout_sec = {START_S}\n"
    with (places.home / ".codex" / "config.toml").open("a") as settings:
        settings.write(ready)  # ends the section of the first
        for number, url in enumerate(others, 1):
            settings.write(f'[mcp_servers.pointsman{number}]\nurl = "{url}"\n')
            settings.write(f'bearer_token_env_var = "POINTSMAN_TOKEN"\n{ready}')
    return started


def _claude_code_names(answer: str) -> Iterator[tuple[str, str]]:
    for line in answer.splitlines():
        if line.startswith("mcp__"):
            _, server, tool = line.split("__", 2)
            yield server, tool
        elif re.fullmatch(r"\w+", line):  # not the sentence that nothing was found
            yield "", line


def _codex_names(answer: str) -> Iterator[tuple[str, str]]:
    for group in json.loads(answer):
        for tool in group.get("tools", [group]):
            yield group["name"].removeprefix("mcp__"), tool["name"]


CLIENTS = (
    Client(
        "Claude Code",
        "claude",
        "@anthropic-ai/claude-code",
        _start_claude_code,
        {"max_results": DEPTH},
        _claude_code_names,
    ),
    Client("Codex", "codex", "@openai/codex", _start_codex, {"limit": DEPTH}, _codex_names),
)
