"""Draws terminal pictures for the pages from a real run: `make pictures` writes docs/pictures/*.svg.

A gateway starts in an empty home, and the commands of each picture are typed at a terminal. What is not the same on
every machine (home, port, token) is replaced by what the pages use.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import socket
import sys
import tempfile
from collections.abc import Mapping
from html import escape, unescape
from pathlib import Path

from tests.e2e.foreign_servers import PYPI
from tests.gateway_process import own_environment

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
BIN = Path(sys.executable).parent
COLUMNS = 100
RUN_S = 120.0  # a bound against hanging
SCENES: Mapping[str, tuple[str, ...]] = {
    "tools": (
        "pointsman server add time uvx mcp-server-time",
        "pointsman tools search what is the current time in Tokyo",
        "pointsman tools call time:get_current_time timezone=Asia/Tokyo",
    ),
    "status": ("pointsman status",),
    "doctor": ("pointsman server add everything http://127.0.0.1:3001/mcp", "pointsman doctor"),
}
TITLES = {
    "start": "The first start of the gateway",
    "tools": "Adding a server, searching its tools, and calling one",
    "status": "pointsman status: servers, calls and saved context",
    "doctor": "pointsman doctor names a server that does not run, and what to do",
}
FONT_PX, LINE_PX, CHAR_PX, EDGE_PX = 14, 20, 8.43, 16
# Each with a colour for light and one for dark surroundings.
COLOURS = {
    "31": ("#b3261e", "#ff7b72"),
    "32": ("#116329", "#56d364"),
    "33": ("#7d4e00", "#e3b341"),
    "34": ("#0550ae", "#79c0ff"),
    "36": ("#1b6c80", "#76e3ea"),
    "2": ("#59636e", "#9198a1"),
    "prompt": ("#59636e", "#9198a1"),
}
SGR = re.compile(r"\x1b\[([\d;]*)m")
OTHER_SEQUENCES = re.compile(r"\x1b\[[\d;?]*[A-HJKlhf]")


async def recorded() -> dict[str, str]:
    """What each picture shows, with the colours of the terminal."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        process = await asyncio.create_subprocess_exec(
            *("script", "-qefc", f"stty cols {COLUMNS}; exec {BIN / 'pointsman'} serve --port 0", "/dev/null"),
            cwd=home,
            env=_environment(home),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            return await asyncio.wait_for(_scenes(process, home), RUN_S)
        finally:
            process.terminate()
            await process.wait()


async def _scenes(process: asyncio.subprocess.Process, home: Path) -> dict[str, str]:
    assert process.stdout is not None
    said = ""
    while "pointsman has " not in said:
        line = (await process.stdout.readline()).decode()
        assert line, said
        said += line
    found = re.search(r"pointsman ready on (http://[\d.:]+)", said)
    assert found is not None, said
    with socket.socket() as unused:  # bound and not listening: nobody answers there
        unused.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
        shown = {"start": f"$ make run\n{said}"}
        for name, lines in SCENES.items():
            shown[name] = "".join([f"$ {line}\n{await _typed(line, home, nobody)}" for line in lines])
    replaced = {str(home): "/home/anna", found[1]: "http://127.0.0.1:3282", nobody: "http://127.0.0.1:3001"}
    return {name: _neutral(text, replaced) for name, text in shown.items()}


async def _typed(line: str, home: Path, nobody: str) -> str:
    command = line.replace("uvx mcp-server-time", str(PYPI / "mcp-server-time")).replace(
        "http://127.0.0.1:3001", nobody
    )
    process = await asyncio.create_subprocess_exec(
        *("script", "-qec", f"stty cols {COLUMNS}; bash -c {shlex.quote(command)}", "/dev/null"),
        cwd=home,
        env=_environment(home),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return out.decode()


def _environment(home: Path) -> dict[str, str]:
    environment = own_environment(home)
    return {**environment, "PATH": f"{BIN}:{environment['PATH']}", "TERM": "xterm-256color"}


def _neutral(text: str, replaced: Mapping[str, str]) -> str:
    for found, shown in replaced.items():
        text = text.replace(found, shown)
    text = re.sub(r"ptm_[\w-]+", "ptm_...", text)
    text = re.sub(r"\?code=[\w-]+", "?code=...", text)
    text = re.sub(r"process \d+", "process 4711", text)
    text = OTHER_SEQUENCES.sub("", text.replace("\r\n", "\n"))
    return re.sub(r"^[^\n]*\r(?!\n)", "", text, flags=re.MULTILINE)  # a line of progress that was overwritten


def drawn(title: str, text: str) -> str:
    """A terminal with this text as SVG. Its colours follow the reader's light or dark theme."""
    lines = [part for line in text.rstrip().split("\n") for part in _wrapped(line)]
    width = round(EDGE_PX * 2 + COLUMNS * CHAR_PX)
    height = EDGE_PX * 2 + len(lines) * LINE_PX
    rows = "\n".join(
        f'<text x="{EDGE_PX}" y="{EDGE_PX + FONT_PX + number * LINE_PX}">{_spans(line)}</text>'
        for number, line in enumerate(lines)
        if line
    )
    light, dark = (_rules(index) for index in (0, 1))
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">
<title>{escape(title)}</title>
<style>
text {{ font: {FONT_PX}px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre }}
text {{ fill: #1f2328 }}
rect {{ fill: #f6f8fa; stroke: #d1d9e0 }}
.bold {{ font-weight: bold }}
{light}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6edf3 }}
rect {{ fill: #0d1117; stroke: #3d444d }}
{dark}
}}
</style>
<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>
{rows}
</svg>
"""


def _rules(theme: int) -> str:
    return "\n".join(f".c{name} {{ fill: {colours[theme]} }}" for name, colours in COLOURS.items())


def _wrapped(line: str) -> list[str]:
    """The line in pieces of the terminal's width, between words where possible; colours have no width."""
    pieces: list[str] = []
    width, piece = 0, ""
    for part in re.split(r"(\x1b\[[\d;]*m)", line):
        for character in [part] if SGR.fullmatch(part) else part:
            if width == COLUMNS and not SGR.fullmatch(character):
                at = piece.rfind(" ") + 1 or len(piece)
                pieces, piece = [*pieces, piece[:at]], piece[at:]
                width = len(piece)
            piece += character
            width += not SGR.fullmatch(character)
    return [*pieces, piece]


def _spans(line: str) -> str:
    """The text of a line, with a span for each colour."""
    if line.startswith("$ "):
        return f'<tspan class="cprompt">$</tspan><tspan class="bold">{escape(line[1:])}</tspan>'
    spans, classes = [], ""
    for index, part in enumerate(SGR.split(line)):
        if index % 2:
            codes = [code for code in part.split(";") if code not in ("", "0")]
            classes = " ".join("bold" if code == "1" else f"c{code}" for code in codes)
        elif part:
            spans.append(f'<tspan class="{classes}">{escape(part)}</tspan>' if classes else escape(part))
    return "".join(spans)


def text_of(svg: str) -> list[str]:
    """The lines of a picture without colours."""
    lines = re.findall(r"<text [^>]*>(.*?)</text>", svg)
    return [unescape(re.sub(r"<[^>]+>", "", line)) for line in lines]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in asyncio.run(recorded()).items():
        (FOLDER / f"{name}.svg").write_text(drawn(TITLES[name], text), encoding="utf-8")
        sys.stdout.write(f"docs/pictures/{name}.svg\n")


if __name__ == "__main__":
    main()
