"""Files as people paste them from elsewhere: each is read as it was meant."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import Any

import pytest

from pointsman.config.errors import ConfigError
from pointsman.config.loader import parse

ENVIRON = {"GITHUB_TOKEN": "t0ken", "API_KEY": "k3y", "HOME": "/home/me"}

# What is written, the servers that it becomes (only the keys that differ from a default), and the notes.
ACCEPTED: dict[str, tuple[str, dict[str, dict[str, Any]], list[str]]] = {
    "Claude Desktop": (
        """\
        {
          "globalShortcut": "Ctrl+Space",
          "mcpServers": {
            "time": {"command": "uvx", "args": ["mcp-server-time", "--port", 8080], "env": {"DEBUG": true}}
          }
        }
        """,
        {"time": {"command": "uvx", "args": ["mcp-server-time", "--port", "8080"], "env": {"DEBUG": "true"}}},
        ["f.yaml:2:3: globalShortcut: is ignored: it is a setting of the client"],
    ),
    "Claude Code": (
        """\
        {"mcpServers": {
          "github": {"type": "http", "url": "https://api.example/mcp", "alwaysLoad": true,
                     "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"}},
          "time": {"type": "stdio", "command": "uvx", "args": ["mcp-server-time"], "env": {}}
        }}
        """,
        {
            "github": {
                "url": "https://api.example/mcp",
                "transport": "http",
                "headers": {"Authorization": "Bearer t0ken"},
            },
            "time": {"command": "uvx", "transport": "stdio", "args": ["mcp-server-time"]},
        },
        ["f.yaml:2:64: mcpServers.github.alwaysLoad: is ignored: it has no meaning for a gateway"],
    ),
    "Cursor": (
        """\
        {"mcpServers": {"search": {"command": "npx", "args": ["-y", "@scope/search", "${userHome}/notes"],
                                   "env": {"API_KEY": "${env:API_KEY}"}}}}
        """,
        {
            "search": {
                "command": "npx",
                "args": ["-y", "@scope/search", "/home/me/notes"],
                "env": {"API_KEY": "k3y"},
            }
        },
        [],
    ),
    "VS Code": (
        """\
        {
          // Asked for when the server starts
          "inputs": [{"type": "promptString", "id": "github-token", "description": "Token", "password": true}],
          "servers": {
            "github": {"type": "http", "url": "https://api.example/mcp",
                       "headers": {"Authorization": "Bearer ${input:github-token}"}},
            "time": {"type": "stdio", "command": "uvx", "args": ["mcp-server-time"],}, /* the clock */
          }
        }
        """,
        {
            "github": {
                "url": "https://api.example/mcp",
                "transport": "http",
                "headers": {"Authorization": "Bearer t0ken"},
            },
            "time": {"command": "uvx", "transport": "stdio", "args": ["mcp-server-time"]},
        },
        [
            "f.yaml:3:3: inputs: a gateway cannot ask; environment variables are used: "
            "`${input:github-token}` is GITHUB_TOKEN"
        ],
    ),
    "Windsurf": (
        """\
        {"mcpServers": {"docs": {"serverUrl": "https://docs.example/mcp", "disabled": false,
                                 "disabledTools": ["erase"], "headers": {"X-Key": "${env:API_KEY}"}},
                        "off": {"serverUrl": "https://off.example/mcp", "disabled": true}}}
        """,
        {
            "docs": {
                "url": "https://docs.example/mcp",
                "tool_permissions": {"erase": False},
                "headers": {"X-Key": "k3y"},
            },
            "off": {"url": "https://off.example/mcp", "enabled": False},
        },
        [],
    ),
    "Gemini CLI": (
        """\
        {"theme": "Default", "mcpServers": {
          "docs": {"httpUrl": "https://docs.example/mcp", "trust": true, "timeout": 5000, "includeTools": ["find"]}
        }}
        """,
        {"docs": {"url": "https://docs.example/mcp", "tool_permissions": {"*": False, "find": True}}},
        [
            "f.yaml:1:2: theme: is ignored: it is a setting of the client",
            "f.yaml:2:51: mcpServers.docs.trust: is ignored: it loosens nothing here; "
            "`confirm` says which calls need a yes, `tool_permissions` forbids tools for all clients",
            "f.yaml:2:66: mcpServers.docs.timeout: is ignored: clients count in different units; "
            "set `timeouts: {call_s: 60}`, in seconds",
        ],
    ),
    "a key of ours that widens rights": (
        """\
        {"mcpServers": {"docs": {"url": "https://docs.example/mcp", "trust_annotations": true}}}
        """,
        {"docs": {"url": "https://docs.example/mcp"}},
        [
            "f.yaml:1:61: mcpServers.docs.trust_annotations: is ignored in a client's block, which others may have "
            "written; write the entry under `servers`",
        ],
    ),
    "a key of ours that widens nothing": (
        """\
        {"mcpServers": {"docs": {"bundled": "archive", "trust_annotations": false}}}
        """,
        {"docs": {"bundled": "archive", "trust_annotations": False}},
        [],
    ),
    "Cline": (
        """\
        {"mcpServers": {
          "github.com/upstash/context7-mcp": {"command": "npx", "args": ["-y", "@upstash/context7-mcp"],
            "autoApprove": ["resolve"], "disabled": false, "timeout": 60, "type": "stdio"},
          "time": {"command": "uvx", "autoApprove": [], "disabled": true}
        }}
        """,
        {
            "context7-mcp": {
                "name": "github.com/upstash/context7-mcp",
                "command": "npx",
                "args": ["-y", "@upstash/context7-mcp"],
                "transport": "stdio",
            },
            "time": {"command": "uvx", "enabled": False},
        },
        [
            'f.yaml:2:3: mcpServers."github.com/upstash/context7-mcp": has the id `context7-mcp` here '
            "and keeps this name for display",
            'f.yaml:3:5: mcpServers."github.com/upstash/context7-mcp".autoApprove: is ignored: it loosens nothing '
            "here; `confirm` says which calls need a yes, `tool_permissions` forbids tools for all clients "
            "(also in 1 more place)",
            'f.yaml:3:52: mcpServers."github.com/upstash/context7-mcp".timeout: is ignored: clients count in '
            "different units; set `timeouts: {call_s: 60}`, in seconds",
        ],
    ),
    "Roo Code": (
        """\
        {"mcpServers": {"docs": {"type": "streamable-http", "url": "https://docs.example/mcp",
                                 "alwaysAllow": ["find"], "disabledTools": []}}}
        """,
        {"docs": {"url": "https://docs.example/mcp", "transport": "http"}},
        [
            "f.yaml:2:26: mcpServers.docs.alwaysAllow: is ignored: it loosens nothing here; "
            "`confirm` says which calls need a yes, `tool_permissions` forbids tools for all clients"
        ],
    ),
    "Copilot CLI": (
        """\
        {"mcpServers": {"time": {"type": "local", "command": "uvx", "args": ["mcp-server-time"], "tools": ["now"]},
                        "none": {"type": "local", "command": "uvx", "tools": []}}}
        """,
        {
            "time": {
                "command": "uvx",
                "transport": "stdio",
                "args": ["mcp-server-time"],
                "tool_permissions": {"*": False, "now": True},
            },
            "none": {"command": "uvx", "transport": "stdio", "tool_permissions": {"*": False}},
        },
        [],
    ),
    "an address that ends in /sse": (
        """\
        {"mcpServers": {"old": {"url": "https://old.example/sse"}}}
        """,
        {"old": {"url": "https://old.example/sse", "transport": "sse"}},
        [],
    ),
    "YAML with a client's words": (
        """\
        servers:
          docs:
            serverUrl: https://docs.example/mcp
            transport: streamable-http
          time:
            type: stdio
            command: uvx
            disabled: true
        """,
        {
            "docs": {"url": "https://docs.example/mcp", "transport": "http"},
            "time": {"command": "uvx", "transport": "stdio", "enabled": False},
        },
        [],
    ),
    "ids that are also keys": (
        """\
        mcpServers:
          tools: {command: uvx, disabled: true}
          env: {command: uvx, isActive: false, tools: [1]}
          command: {baseUrl: "https://a.example/mcp", transportType: sse}
        """,
        {
            "tools": {"command": "uvx", "enabled": False},
            "env": {"command": "uvx", "enabled": False, "tool_permissions": {"*": False, "1": True}},
            "command": {"url": "https://a.example/mcp", "transport": "sse"},
        },
        [],
    ),
    "ids with spaces, dots and slashes": (
        """\
        servers:
          My Notes: {command: notes}
          io.github.time: {command: uvx, name: Clock}
          "@scope/search": {command: npx}
        """,
        {
            "My-Notes": {"command": "notes", "name": "My Notes"},
            "io-github-time": {"command": "uvx", "name": "Clock"},
            "search": {"command": "npx", "name": "@scope/search"},
        },
        [
            'f.yaml:2:3: servers."My Notes": has the id `My-Notes` here and keeps this name for display',
            'f.yaml:3:3: servers."io.github.time": has the id `io-github-time` here and keeps this name for display',
            'f.yaml:4:3: servers."@scope/search": has the id `search` here and keeps this name for display',
        ],
    ),
    "a JSON block between YAML keys": (
        """\
        servers:
          notes: {command: notes}
        {
          "mcpServers": { // pasted
            "time": {"command": "uvx", "autoApprove": []}
          }
        }
        listen: {port: 1}
        """,
        {"notes": {"command": "notes"}, "time": {"command": "uvx"}},
        [
            "f.yaml:5:32: mcpServers.time.autoApprove: is ignored: it loosens nothing here; "
            "`confirm` says which calls need a yes, `tool_permissions` forbids tools for all clients"
        ],
    ),
    "two JSON blocks": (
        """\
        {"mcpServers": {"time": {"command": "uvx"}}}
        {"servers": {"notes": {"type": "STDIO", "command": "notes"}}}
        """,
        {"notes": {"command": "notes", "transport": "stdio"}, "time": {"command": "uvx"}},
        [],
    ),
    "discovery switched off": (
        """\
        projects:
          quiet: {optimization: off}
          silent: {optimization: false}
        unassigned: {optimization: "off"}
        """,
        {},
        [],
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_pasted_block_is_read_as_it_was_meant(case: str) -> None:
    text, servers, notes = ACCEPTED[case]
    config = parse(dedent(text), "f.yaml", ENVIRON)
    assert {server_id: _written(server) for server_id, server in config.servers.items()} == servers
    assert list(config.notes) == notes


RESTRICTIONS: dict[str, Any] = {
    "confirm": "destructive",
    "pin": "locked",
    "questions": False,
    "rates": {"calls_per_minute": 1},
    "tool_rates": {"send": {"calls_per_day": 1}},
    "sandbox": {},
    "limits": {"processes": 10},
}


@pytest.mark.parametrize(("key", "value"), [*RESTRICTIONS.items(), ("confirm", "never"), ("pin", "off")])
def test_a_pasted_block_neither_loosens_nor_seems_to_tighten_what_protects_a_server(key: str, value: Any) -> None:
    text = json.dumps({"mcpServers": {"docs": {"command": "docs", key: value}}})
    with pytest.raises(ConfigError) as refused:
        parse(text, "f.yaml", {})
    problem = f"mcpServers.docs.{key}: is not read from `mcpServers`; move the server to `servers`"
    assert problem in str(refused.value)
    moved = parse(json.dumps({"servers": {"docs": {"command": "docs", key: value}}}), "f.yaml", {})
    assert moved.servers["docs"].model_dump(include={key}, exclude_none=True)


def _written(server: Any) -> dict[str, Any]:
    shown = server.model_dump(exclude_defaults=True)
    for key in ("env", "headers"):
        if key in shown:
            shown[key] = {name: value.get_secret_value() for name, value in shown[key].items()}
    return {**shown, **({"args": list(shown["args"])} if "args" in shown else {})}


def test_a_display_name_may_have_typographic_quotes() -> None:
    assert parse("servers: {a: {command: x, name: “A”}}", "f.yaml", {}).servers["a"].name == "“A”"


def test_slashes_outside_of_comments_stay() -> None:
    text = (
        '{"servers": {"a": {"url": "https://a.example/mcp", "headers": {"X": "/* no */ // no"}}, b: {url: http://b/}}}'
    )
    servers = parse(text, "f.yaml", {}).servers
    assert servers["a"].headers["X"].get_secret_value() == "/* no */ // no"
    assert servers["b"].url == "http://b/"


def test_discovery_is_off() -> None:
    config = parse(dedent(ACCEPTED["discovery switched off"][0]), "f.yaml", {})
    assert config.unassigned.optimization is None
    assert [project.optimization for project in config.projects.values()] == [None, None]
