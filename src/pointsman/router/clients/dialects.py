"""How each client writes its MCP servers down: its files, key, format, entry forms and variable syntax, as one table.

An entry form is a template. The placeholders are `{url}`, `{secret}` (the token, or the client's reference to a
variable with it), `{variable}`, `{command}`, `{args}` and `{line}` (the command and its arguments as one list).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Format = Literal["json", "toml", "yaml"]  # "json": comments and trailing commas are read and kept
Template = Mapping[str, Any]

_BEARER = {"Authorization": "Bearer {secret}"}
_STDIO: Template = {"command": "{command}", "args": "{args}", "env": {"POINTSMAN_TOKEN": "{secret}"}}
_GOOSE_HTTP: Template = {
    "enabled": True,
    "type": "streamable_http",
    "name": "pointsman",
    "uri": "{url}",
    "headers": _BEARER,
    "timeout": 300,
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """One client. Fields with a default are those that few clients need."""

    name: str  # as the command line spells it
    title: str
    format: Format
    section: str  # the top-level key that holds the servers
    user_files: tuple[str, ...]  # the first that exists, otherwise the first; see `user_file`
    project_file: str | None  # relative to a project's folder; None: the client has none
    http: Template | None  # None: the client can only start commands
    stdio: Template
    variable: str | None  # how a value refers to the variable NAME; None: values are literal
    more_variables: tuple[str, ...] = ()  # other spellings of the same that the client reads
    variable_in_env: bool = True  # also in the environment of a command
    http_with_variable: Template | None = None  # where the form differs with a variable instead of the token
    verified: bool = False  # against the real program, by a test; otherwise from the client's documentation
    after: str = ""  # what a person does for a change to take effect


DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            name="claude-code",
            title="Claude Code",
            format="json",
            section="mcpServers",
            user_files=("$CLAUDE_CONFIG_DIR/.claude.json", "~/.claude.json"),
            project_file=".mcp.json",
            http={"type": "http", "url": "{url}", "headers": _BEARER, "alwaysLoad": True},
            stdio={"type": "stdio", **_STDIO, "alwaysLoad": True},
            variable="${NAME}",
            verified=True,
            after="Sessions that are open take it up when they are started anew.",
        ),
        Dialect(
            name="claude-desktop",
            title="Claude Desktop",
            format="json",
            section="mcpServers",
            user_files=("{apps}/Claude/claude_desktop_config.json",),
            project_file=None,
            http=None,
            stdio=_STDIO,
            variable=None,
            after="Quit Claude Desktop and start it again.",
        ),
        Dialect(
            name="cursor",
            title="Cursor",
            format="json",
            section="mcpServers",
            user_files=("~/.cursor/mcp.json",),
            project_file=".cursor/mcp.json",
            http={"url": "{url}", "headers": _BEARER},
            stdio=_STDIO,
            variable="${env:NAME}",
            after="Restart Cursor, or switch the server on under Settings, MCP.",
        ),
        Dialect(
            name="vscode",
            title="VS Code",
            format="json",
            section="servers",
            user_files=("{apps}/Code/User/mcp.json",),
            project_file=".vscode/mcp.json",
            http={"type": "http", "url": "{url}", "headers": _BEARER},
            stdio={"type": "stdio", **_STDIO},
            variable="${env:NAME}",
            after="Run the command `MCP: List Servers` in VS Code and start the server.",
        ),
        Dialect(
            name="windsurf",
            title="Windsurf",
            format="json",
            section="mcpServers",
            user_files=("~/.codeium/windsurf/mcp_config.json",),
            project_file=None,
            http={"serverUrl": "{url}", "headers": _BEARER},
            stdio=_STDIO,
            variable="${env:NAME}",
            after="Press the refresh button of the MCP panel in Windsurf.",
        ),
        Dialect(
            name="codex",
            title="Codex",
            format="toml",
            section="mcp_servers",
            user_files=("$CODEX_HOME/config.toml", "~/.codex/config.toml"),
            project_file=".codex/config.toml",
            http={"url": "{url}", "http_headers": _BEARER},
            http_with_variable={"url": "{url}", "bearer_token_env_var": "{variable}"},
            stdio=_STDIO,
            variable=None,
            verified=True,
            after="Sessions that are open take it up when they are started anew.",
        ),
        Dialect(
            name="gemini",
            title="Gemini CLI",
            format="json",
            section="mcpServers",
            user_files=("~/.gemini/settings.json",),
            project_file=".gemini/settings.json",
            http={"httpUrl": "{url}", "headers": _BEARER},
            stdio=_STDIO,
            variable="${NAME}",
            more_variables=("$NAME",),
            verified=True,
            after="Start it in a folder that it trusts; in others it disables all MCP servers.",
        ),
        Dialect(
            name="goose",
            title="Goose",
            format="yaml",
            section="extensions",
            user_files=("{config}/goose/config.yaml",),
            project_file=None,
            http=_GOOSE_HTTP,
            http_with_variable={**_GOOSE_HTTP, "env_keys": ["{variable}"]},
            stdio={
                "enabled": True,
                "type": "stdio",
                "name": "pointsman",
                "cmd": "{command}",
                "args": "{args}",
                "envs": {"POINTSMAN_TOKEN": "{secret}"},
                "timeout": 300,
            },
            variable="${NAME}",
            more_variables=("$NAME",),
            variable_in_env=False,
            after="Start a new session.",
        ),
        Dialect(
            name="zed",
            title="Zed",
            format="json",
            section="context_servers",
            user_files=("{config}/zed/settings.json",),
            project_file=".zed/settings.json",
            http={"url": "{url}", "headers": _BEARER},
            stdio=_STDIO,
            variable=None,
            after="Zed takes it up when the file is saved.",
        ),
        Dialect(
            name="opencode",
            title="OpenCode",
            format="json",
            section="mcp",
            user_files=("{config}/opencode/opencode.json", "{config}/opencode/opencode.jsonc"),
            project_file="opencode.json",
            http={"type": "remote", "url": "{url}", "headers": _BEARER, "enabled": True},
            stdio={
                "type": "local",
                "command": "{line}",
                "environment": {"POINTSMAN_TOKEN": "{secret}"},
                "enabled": True,
            },
            variable="{env:NAME}",
            verified=True,
            after="Sessions that are open take it up when they are started anew.",
        ),
        Dialect(
            name="cline",
            title="Cline",
            format="json",
            section="mcpServers",
            user_files=(
                "$CLINE_MCP_SETTINGS_PATH",
                "{apps}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                "~/.cline/data/settings/cline_mcp_settings.json",
            ),
            project_file=None,
            http={"type": "streamableHttp", "url": "{url}", "headers": _BEARER, "disabled": False},
            stdio={**_STDIO, "disabled": False},
            variable="${env:NAME}",
            after="Cline takes it up when the file is saved.",
        ),
        Dialect(
            name="copilot",
            title="Copilot CLI",
            format="json",
            section="mcpServers",
            user_files=("$COPILOT_HOME/mcp-config.json", "~/.copilot/mcp-config.json"),
            project_file=".github/mcp.json",
            http={"type": "http", "url": "{url}", "headers": _BEARER, "tools": ["*"], "deferTools": "never"},
            stdio={"type": "local", **_STDIO, "tools": ["*"], "deferTools": "never"},
            variable="${NAME}",
            more_variables=("$NAME",),
            verified=True,
            after="Sessions that are open take it up when they are started anew.",
        ),
    )
}


def user_file(dialect: Dialect, environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """The client's file of this user: the one that a variable names, the first that exists, or the first one."""
    candidates = []
    for text in dialect.user_files:
        path = _resolved(text, environ, platform)
        if path is not None and text.startswith("$"):
            return path
        if path is not None:
            candidates.append(path)
    return next((path for path in candidates if os.path.exists(path)), candidates[0])


def project_file(dialect: Dialect, folder: Path) -> Path | None:
    return folder / dialect.project_file if dialect.project_file is not None else None


def _resolved(text: str, environ: Mapping[str, str], platform: str) -> Path | None:
    """None: the path starts with a variable that is not set."""
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    first, _, rest = text.partition("/")
    if first.startswith("$"):
        value = environ.get(first[1:])
        return Path(value) / rest if value else None
    config = Path(environ.get("XDG_CONFIG_HOME") or "")
    if not config.is_absolute():  # as the XDG specification says
        config = home / ".config"
    apps = home / "Library" / "Application Support" if platform == "darwin" else config
    return {"~": home, "{config}": config, "{apps}": apps}[first] / rest
