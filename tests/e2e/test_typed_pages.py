"""What the pages tell people to type is typed here, in a home with nothing in it, and works."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from pointsman.config.loader import parse
from pointsman.router.clients.dialects import DIALECTS
from pointsman.router.clients.found_servers import of_text
from tests.e2e.foreign_servers import PYPI, everything_over, needs_npm, needs_pypi
from tests.forked_command import forked_command
from tests.gateway_process import own_environment

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    *(f"docs/guide/{name}.md" for name in ("clients", "import", "operations", "stdio", "troubleshooting", "tutorial")),
    *(f"docs/guide/clients/{name}.md" for name in DIALECTS if name != "goose"),  # its YAML is no configuration of ours
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
RUN_ELSEWHERE = re.compile(
    r"<!-- client: (?!stdio)\S+ -->\n```.*?^```", re.DOTALL | re.MULTILINE
)  # clients/test_clients.py, agents/test_three_commands.py
BIN = Path(sys.executable).parent
COLOUR = re.compile(r"\x1b\[\d*[mK]")
RUN_S = 120.0  # a bound against hanging
ENDLESS_S = 2.0
CLOCK = ROOT / "tests/e2e/clients/clock_server.py"
MAY_FIND_PROBLEMS = "pointsman doctor"  # its exit code says what it found, not whether it works


def blocks(language: str) -> list[tuple[str, str]]:
    found = [(page, BLOCK.findall(RUN_ELSEWHERE.sub("", (ROOT / page).read_text()))) for page in PAGES]
    return [(page, code) for page, all_of_it in found for kind, code in all_of_it if kind == language]


@pytest.mark.parametrize(("page", "code"), blocks("yaml"))
def test_every_yaml_block_is_a_good_configuration_as_it_stands(page: str, code: str) -> None:
    assert parse(code, page, {})


@pytest.mark.parametrize(("page", "code"), blocks("json"))
def test_every_json_block_is_the_entry_of_a_client(page: str, code: str) -> None:
    findings = of_text(code, "block.json", {})
    assert len(findings.servers) == 1, page
    json.loads(code)


@dataclass(frozen=True)
class Person:
    """Somebody who has started the gateway, and now types."""

    home: Path
    url: str
    said: str  # by the first start
    commands: Path  # the folder of `pointsman`

    async def types(self, line: str) -> tuple[int, str]:
        """At a terminal, answering every question with yes; returns the exit code and what was shown."""
        typed = line.replace("http://127.0.0.1:3282", self.url.removesuffix("/mcp"))
        environment = own_environment(self.home)
        process = await asyncio.create_subprocess_exec(
            *("script", "-qec", f"bash -c {shlex.quote(typed)}", "/dev/null"),
            cwd=self.home,
            env=environment | {"PATH": f"{self.commands}:{BIN}:{environment['PATH']}"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.write(b"y\n" * 5)
        endless = " -f" in line
        try:
            async with asyncio.timeout(ENDLESS_S if endless else RUN_S):
                shown = await process.stdout.read()
                return await process.wait(), shown.decode()
        except TimeoutError:
            assert endless, f"{line} does not end"
            return 0, ""
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.fixture(scope="module")
async def person(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Person]:
    home = tmp_path_factory.mktemp("home")
    (home / "notes").mkdir()
    (home / "notes/queue.md").write_text("# Queue\n\nWe chose the queue because it keeps order.\n")
    (home / ".cursor").mkdir()
    clock = {"command": sys.executable, "args": [str(CLOCK)]}
    (home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": {"clock": clock}}))
    (home / "servers.json").write_text(json.dumps({"mcpServers": {"second": {**clock, "env": {"A": "1"}}}}))
    remote = {"type": "streamable-http", "url": "http://127.0.0.1:9/mcp"}
    (home / "server.json").write_text(json.dumps({"name": "io.example/remote", "remotes": [remote]}))
    process = await asyncio.create_subprocess_exec(
        *(BIN / "pointsman", "serve", "--port", "0"),
        cwd=home,
        env=own_environment(home),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    said = ""
    try:
        async with asyncio.timeout(RUN_S):
            while not (found := re.search(r"pointsman ready on (\S+)", said)):
                line = (await process.stderr.readline()).decode()
                assert line, said
                said += line
        drain = asyncio.create_task(process.stderr.read())
        with forked_command(tmp_path_factory.mktemp("bin")) as commands:
            yield Person(home, found[1], said, commands)
        process.terminate()
        await asyncio.wait_for(process.wait(), RUN_S)
        await drain
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("page", [page for page in PAGES if any(page == one for one, _ in blocks("sh"))])
async def test_every_command_of_a_page_works_as_typed(page: str, person: Person) -> None:
    lines = [line for one, code in blocks("sh") if one == page for line in code.splitlines() if line.strip()]
    for line in lines:
        if line == "make run":  # that is what has started the gateway, but for the installation
            continue
        code, shown = await person.types(line)
        assert code == 0 or line.startswith(MAY_FIND_PROBLEMS), f"{line}\n{shown}"
        assert "Traceback" not in shown


async def test_the_first_start_offers_the_servers_of_the_clients_and_shows_none_of_their_values(person: Person) -> None:
    [offer] = [line for line in person.said.splitlines() if "Your clients have servers already" in line]
    assert "Cursor (1)" in offer
    assert "import`" in offer
    assert str(CLOCK) not in person.said
    commands = re.findall(r"`([^`]* (?:client list|import))`", person.said)
    assert len(commands) == 2
    for command in commands:
        code, shown = await person.types(command)
        assert code == 0, shown


def tutorial() -> list[tuple[str, str, list[str]]]:
    """Each command of the tutorial with the prose before its block, and what the page shows below it."""
    prose, *rest = re.split(r"^```console\n", (ROOT / "docs/guide/tutorial.md").read_text(), flags=re.MULTILINE)
    steps: list[tuple[str, str, list[str]]] = []
    for piece in rest:
        block, _, after = piece.partition("\n```\n")
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *shown = command.splitlines()
            steps.append((prose, line, shown))
            prose = ""
        prose = after
    return [step for step in steps if step[1].startswith("pointsman ")]


def sentences(shown: list[str]) -> list[str]:
    """The beginnings of what the page shows about servers and results, which are the same everywhere."""
    texts = [text.removeprefix("problem").strip().removeprefix("servers").strip() for text in shown]
    return [re.split(r"[,:]", text)[0] for text in texts if text.startswith(("Server `", "The sum of"))]


async def types_until(person: Person, line: str, expected: list[str]) -> None:
    """Type a line; one that looks at the servers again and again, until the gateway has noticed what happened."""
    printed, looks = "", line.startswith((MAY_FIND_PROBLEMS, "pointsman server test"))
    try:
        async with asyncio.timeout(RUN_S):
            while True:
                code, printed = await person.types(line)
                assert code == 0 or looks, f"{line}\n{printed}"
                printed = COLOUR.sub("", printed)
                if all(text in printed for text in expected):
                    return
                assert looks, f"{line}\n{expected}\n{printed}"
    except TimeoutError:
        raise AssertionError(f"{line} never says {expected}:\n{printed}") from None


class TestTutorial:
    pytestmark = needs_pypi + needs_npm

    async def test_the_tutorial_works_as_typed(self, person: Person) -> None:
        config = person.home / ".config/pointsman/pointsman.yaml"
        acts: list[str] = []
        async with AsyncExitStack() as remote:
            url = (await remote.enter_async_context(everything_over("streamableHttp")))["url"]
            for prose, line, shown in tutorial():
                if "change `mcp-server-time` to `mcp-server-tiem`" in prose:
                    config.write_text(config.read_text().replace("server-time", "server-tiem"))
                    acts.append("broken")
                if "Correct the name" in prose:
                    config.write_text(config.read_text().replace("server-tiem", "server-time"))
                    acts.append("repaired")
                if "stop the remote server" in prose:
                    await remote.aclose()
                    acts.append("stopped")
                typed = line.replace("uvx mcp-server-time", str(PYPI / "mcp-server-time"))
                await types_until(person, typed.replace("http://127.0.0.1:3001/mcp", url), sentences(shown))
        assert acts == ["broken", "repaired", "stopped"]
