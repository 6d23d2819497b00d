"""Files as people mistype them: each is answered with what to write instead, in bounded time."""

from __future__ import annotations

import time
from pathlib import Path
from textwrap import dedent

import pytest

from pointsman.config.errors import ConfigError
from pointsman.config.loader import parse
from tests.config.test_pasted_files import ENVIRON

REFUSED: dict[str, tuple[str, list[str]]] = {
    "a command line in one text": (
        """\
        servers:
          time: {command: uvx mcp-server-time}
          notes: {command: npx -y, args: ["@scope/notes"]}
        """,
        [
            "f.yaml:2:19: servers.time.command: takes only the program; "
            "write `command: uvx` and `args: [mcp-server-time]`",
            "f.yaml:3:20: servers.notes.command: takes only the program; write `command: npx` and `args: [-y, ...]`",
        ],
    ),
    "arguments in one text": (
        "servers:\n  time:\n    command: uvx\n    args: mcp-server-time --local-timezone 'Europe/Berlin'\n",
        [
            "f.yaml:4:11: servers.time.args: must be a list; "
            "write `args: [mcp-server-time, --local-timezone, Europe/Berlin]`"
        ],
    ),
    "typographic quotes": (
        "{“mcpServers”: {“time”: {“command”: “uvx”}}}",
        [
            'f.yaml:1:2: typographic quotes do not quote in YAML; write "mcpServers"',
            'f.yaml:1:17: typographic quotes do not quote in YAML; write "time"',
            'f.yaml:1:26: typographic quotes do not quote in YAML; write "command"',
            'f.yaml:1:37: typographic quotes do not quote in YAML; write "uvx"',
        ],
    ),
    "a tab": (
        "servers:\n  time:\n\t\tcommand: uvx\n",
        ["f.yaml:3:1: a tab cannot indent YAML; use spaces"],
    ),
    "no space after the colon": (
        "servers:\n  time:\n    command:uvx\n    args: [mcp-server-time]\n",
        ["f.yaml:3:5: a space is missing after the colon; write `command: ...`"],
    ),
    "no space after the only colon": (
        "servers:\n  time:\n    command:uvx\n",
        ["f.yaml:3:5: servers.time: a space is missing after the colon; write `command: ...`"],
    ),
    "a quote that never closes": (
        "servers:\n  time:\n    command: 'uvx\n    args: [mcp-server-time]\n",
        ["f.yaml:3:14: the quote that opens here is never closed; add `'` at the end of the value"],
    ),
    "a line that starts too far left": (
        "servers:\n  time:\n    command: uvx\n   args: [mcp-server-time]\n",
        ["f.yaml:4:4: the indentation fits no line above; keys that belong together start in the same column"],
    ),
    "a line that starts too far right": (
        "servers:\n  time:\n    command: uvx\n      args: [mcp-server-time]\n",
        ["f.yaml:4:7: this line is indented deeper than line 3, which has a value already; indent both alike"],
    ),
    "a block pasted twice": (
        'mcpServers: {"time": {"command": "uvx"}}\nmcpServers: {"notes": {"command": "notes"}}\n',
        ["f.yaml:2:1: mcpServers: is a duplicate of the key in line 1; keep one of them"],
    ),
    "servers as a list": (
        "servers:\n  - name: time\n    command: uvx\n",
        ["f.yaml:1:1: servers: is a list, but must be a mapping; write `time:` instead of `-`, and its keys below it"],
    ),
    "JSON without a comma": (
        '{"mcpServers": {\n  "time": {"command": "uvx"}\n  "notes": {"command": "notes"}\n}}\n',
        ["f.yaml:3:3: a comma is missing before this, or a quote before it is not closed"],
    ),
    "JSON without a comma and without indentation": (
        '{"mcpServers": {\n"time": {"command": "[uvx"}\n"notes": {"command": "notes"}\n}}\n',
        ["f.yaml:3:1: a comma is missing before this, or a quote before it is not closed"],
    ),
    "a bracket that never closes, and more servers": (
        "servers:\n  time:\n    args: [mcp-server-time\n  notes:\n    command: notes\n    args: [x] # ]\n",
        ["f.yaml:3:11: the `[` that opens here is not closed before line 4; add `]`"],
    ),
    "a bracket that never closes after a quoted item": (
        'servers:\n  time:\n    args: [-c, "print([])"\n    command: python\n',
        ["f.yaml:3:11: the `[` that opens here is not closed before line 4; add `]`"],
    ),
    "a brace that never closes, and more servers": (
        "servers:\n  time: {command: uvx\n  notes: {command: notes}\n",
        ["f.yaml:2:9: the `{` that opens here is not closed before line 3; add `}`"],
    ),
    "JSON that was not copied to its end": (
        '{"mcpServers": {\n  "time": {"command": "uvx"}\n',
        ["f.yaml:1:16: the `{` that opens here is never closed; add `}`"],
    ),
    "JSON between keys that was not copied to its end": (
        'listen: {port: 1}\n{\n  "mcpServers": {\n    "time": {"command": "uvx"}\n  }\n',
        ["f.yaml:2:1: the `{` that opens here is never closed; add `}`"],
    ),
    "JSON between keys without a comma": (
        'listen: {port: 1}\n{"mcpServers": {\n  "time": {"command": "uvx"}\n  "notes": {"command": "notes"}\n}}\n',
        ["f.yaml:4:3: a comma is missing before this, or a quote before it is not closed"],
    ),
    "JSON as a value that is not indented": (
        'listen: {port: 1}\nmcpServers:\n{\n  "time": {"command": "uvx"}\n}\n',
        ["f.yaml:3:1: put this `{` behind the colon of line 2"],
    ),
    "an item of a list behind the colon": (
        "servers:\n  time:\n    command: uvx\n    args: - mcp-server-time\n",
        ["f.yaml:4:11: an item of a list (`- ...`) starts on a line of its own"],
    ),
    "a brace too many": (
        '{"mcpServers": {"time": {"command": "uvx"}}}}\n',
        ["f.yaml:1:45: there is one `}` too many; delete it"],
    ),
    "entries of JSON below a YAML key": (
        'servers:\n  "time": {"command": "uvx"},\n  "notes": {"command": "notes"}\n',
        ["f.yaml:2:29: delete this comma; commas stand only inside braces and brackets"],
    ),
    "a section inside the other": (
        'servers:\n  {"mcpServers": {"time": {"command": "uvx"}}}\n',
        ["f.yaml:2:4: servers.mcpServers: is a section, not a server; write it at the top level"],
    ),
    "servers that are only a text": (
        """\
        servers:
          a: https://a.example/mcp
          b: uvx mcp-server-time
          c:
            command = uvx
        """,
        [
            "f.yaml:2:6: servers.a: must be a mapping; write the address below it, as `url: ...`",
            "f.yaml:3:6: servers.b: must be a mapping; below it, write `command: uvx` and `args: [mcp-server-time]`",
            "f.yaml:5:5: servers.c: a colon is needed, not `=`; write `command: ...`",
        ],
    ),
    "a dash without a space": (
        "servers:\n  time:\n    command: uvx\n    args:\n    -mcp-server-time\n    -x\n",
        ["f.yaml:5:5: a space is missing after the `-` of this item"],
    ),
    "a value that starts with #": (
        "servers:\n  time: {command: uvx, args: [#1]}\n",
        ["f.yaml:2:31: `#` starts a comment here; quote a value that starts with it"],
    ),
    "the fence of a code block": (
        '```json\n{"mcpServers": {"time": {"command": "uvx"}}}\n```\n',
        ["f.yaml:1:1: this line encloses a code block of a web page or chat; delete it"],
    ),
    "two names that become one id": (
        """\
        mcpServers:
          My Notes: {command: notes}
          my.io/My-Notes: {command: notes}
        """,
        [
            'f.yaml:3:3: mcpServers."my.io/My-Notes": gets the same id `My-Notes` as `mcpServers."My Notes"`; '
            "rename one of them"
        ],
    ),
    "a block that contains the gateway itself": (
        '{"mcpServers": {"pointsman": {"url": "http://127.0.0.1:3282/mcp"}}}',
        [
            "f.yaml:1:17: mcpServers.pointsman: is reserved for the gateway's own tools; choose another id, "
            "such as `pointsman-2`, or delete the entry if it is this gateway itself"
        ],
    ),
    "a server at the top level": (
        '"time": {"command": "uvx", "args": ["mcp-server-time"]}',
        ["f.yaml:1:1: time: is a server, so it belongs below `servers:`; put that line above it and indent it"],
    ),
    "the keys of a server at the top level": (
        "command: uvx\n",
        [
            "f.yaml:1:1: command: belongs to a server; write `servers:`, below it an id such as `time:`, "
            "and this below the id"
        ],
    ),
    "the section of another client": (
        'context_servers: {"time": {"command": "uvx"}}\nmcp: {servers: {}}',
        [
            "f.yaml:1:1: context_servers: is a client's section; rename it `mcpServers`, "
            "or save it as a file and run `pointsman import FILE`",
            "f.yaml:2:1: mcp: is a section of VS Code's settings; move `servers` and `inputs` out of it, "
            "to the top level",
        ],
    ),
    "TOML": (
        '[mcp_servers.time]\ncommand = "uvx"\nargs = ["mcp-server-time"]\n',
        ["f.yaml:1:1: this is TOML, not YAML; save it as a .toml file and run `pointsman import FILE`"],
    ),
    "an asterisk": (
        "tokens:\n  laptop:\n    servers: [*]\n",
        ['f.yaml:3:15: a value that starts with `*` is an alias in YAML; quote it, such as "*"'],
    ),
    "a Windows path": (
        'servers:\n  notes:\n    command: "C:\\Users\\me\\notes.exe"\n',
        ["f.yaml:3:17: in double quotes `\\` starts an escape; write `\\\\`, or use single quotes"],
    ),
    "spaces of a web page": (
        "servers:\n\u00a0\u00a0time: {command: uvx}\n",
        ["f.yaml:2:1: this line starts with a character that only looks like a space (U+00A0); type the spaces anew"],
    ),
    "a value that a person has to supply": (
        """\
        {"servers": {
          "docs": {"url": "https://docs.example/${input:place}", "headers": {"X": "${env:NOT_SET}"}},
          "here": {"command": "uvx", "args": ["${workspaceFolder}"], "envFile": ".env"},
          "mail": {"url": "https://mail.example/mcp", "oauth": {"clientId": "x"}}
        }}
        """,
        [
            "f.yaml:2:19: servers.docs.url: a gateway cannot ask for `${input:place}`; "
            "set the environment variable PLACE",
            "f.yaml:2:75: servers.docs.headers.X: the environment variable NOT_SET is not set; set it, or give a "
            "default with ${NOT_SET:-...}",
            "f.yaml:3:39: servers.here.args[0]: `${workspaceFolder}` is the folder that is open in the editor, "
            "which a gateway does not know; write the path",
            "f.yaml:3:62: servers.here.envFile: is not supported; write its variables under `env`",
            "f.yaml:4:57: servers.mail.oauth.clientId: unknown key (did you mean `client_id`?)",
        ],
    ),
    "keys of clients that contradict": (
        """\
        mcpServers:
          a: {url: "https://a.example", httpUrl: "https://b.example"}
          b: {command: x, includeTools: [a], tool_permissions: {b: true}}
          c: {command: x, disabledTools: erase}
          d: {command: x, env: [A=b]}
          e: {serverUrl: "${NOT_SET}", httpUrl: "https://b.example"}
        """,
        [
            "f.yaml:2:33: mcpServers.a.httpUrl: means the same as `url`; keep one of them",
            "f.yaml:3:19: mcpServers.b.includeTools: means the same as `tool_permissions`; keep one of them",
            "f.yaml:4:34: mcpServers.c.disabledTools: must be a list of names of tools, like [first, second]",
            "f.yaml:5:19: mcpServers.d.env: must be a mapping; write `NAME: value` instead of `- NAME=value`",
            "f.yaml:6:18: mcpServers.e.serverUrl: the environment variable NOT_SET is not set; set it, or give a "
            "default with ${NOT_SET:-...}",
            "f.yaml:6:32: mcpServers.e.httpUrl: means the same as `serverUrl`; keep one of them",
        ],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistyped_file_is_answered_with_what_to_write(case: str) -> None:
    text, expected = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        parse(dedent(text), "f.yaml", ENVIRON)
    assert str(caught.value).splitlines() == expected


def test_what_came_from_outside_or_looks_like_a_secret_is_not_repeated() -> None:
    text = dedent(
        """\
        servers:
          a: {command: "${SECRET}"}
          b: {command: "${SECRET}", args: "${SECRET}"}
          c: {command: "run --token sk-0123456789abcdefghij", args: "--key=ghp_0123456789abcdefghijkl"}
          d: {command: ["${SECRET}", x]}
          e: ["${SECRET}"]
          f: {command: x, type: "${SECRET}", tools: "${SECRET}"}
        projects: ["${SECRET}"]
        tokens:
          - name: ${SECRET}
        """
    )
    with pytest.raises(ConfigError) as caught:
        parse(text, "f.yaml", {"SECRET": "hunter2 hunter3"})
    assert len(caught.value.problems) == 11
    assert not any(secret in str(caught.value) for secret in ("hunter", "0123"))


def test_a_program_whose_path_has_spaces_is_no_command_line(tmp_path: Path) -> None:
    program = tmp_path / "My Notes" / "notes"
    program.parent.mkdir()
    program.touch()
    config = parse(f"servers:\n  a: {{command: '{program}'}}\n  b: {{command: /no/such dir/x}}\n", "f.yaml", {})
    assert config.servers["a"].command == str(program)
    (tmp_path / "notes2").touch()
    with pytest.raises(ConfigError, match=r"write `command: .*/notes2` and `args: \[-v\]`"):
        parse(f"servers:\n  a: {{command: '{tmp_path}/notes2 -v'}}\n", "f.yaml", {})


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "text",
    [
        "a: b\n" + "{}\n" * 100_000,
        "a: b\n" + "{\n" * 100_000,
        '{"a": ' + "/*" * 200_000,
        '{"a": ' + '"' * 200_001,
        "servers:\n" + "".join(f"  'a {number}': {{command: x, trust: true}}\n" for number in range(5_000)) + "x: 1\n",
        "servers:\n" + "".join(f"  'a{number}/x': {{command: x}}\n" for number in range(10_000)),
        "servers: {a: {command: '" + "x " * 200_000 + "'}}",
        "".join(f"a{number}:b\n" for number in range(20_000)),
    ],
    ids=["blocks", "braces", "comments", "quotes", "notes", "same ids", "words", "colons"],
)
def test_a_large_strange_file_is_refused_in_bounded_time(text: str) -> None:
    """A bound against hanging: what takes time in proportion to the square of the file would need minutes."""
    started = time.process_time()
    with pytest.raises(ConfigError):
        parse(text, "f.yaml", {})
    assert time.process_time() - started < 30
