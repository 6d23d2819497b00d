"""Blocks of servers that people paste from their clients, in our form: other sections and keys, same meaning.

Nothing in such a block can widen a right: what a client says about confirmations is only noted, and its choices of
tools are obeyed. What has no safe counterpart here is an error with the next step, and so are keys by which an owner
protects a server: ignored, one that tightens would fail open.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from pointsman.config.errors import closest
from pointsman.config.model import GatewayConfig
from pointsman.config.secrets import holds_secret
from pointsman.config.sections.value_types import ID_PATTERN
from pointsman.config.yaml.document import Document, KeyPath, render
from pointsman.config.yaml.references import input_variable
from pointsman.config.yaml.syntax import NO_COMMENT

CLIENT_SECTION = "mcpServers"  # a client's own block of servers
ADDRESS_KEYS = ("url", "serverUrl", "httpUrl", "uri", "server_url", "baseUrl")
ENVIRONMENT_KEYS = ("env", "envs", "environment")
WITHOUT_EFFECT = frozenset(  # on a gateway: texts and icons of the client, and when it loads tools
    {"description", "alwaysLoad", "deferTools", "gallery", "version", "icon", "bundled", "settings", "display_name"}
    | {"displayName", "required", "dev", "fromGalleryId", "priority", "serverInstructions", "chatMenu", "iconPath"}
)
CONFIRMATIONS = frozenset({"autoApprove", "alwaysAllow", "trust"})

MAX_ID = 56  # of a mended id, so that a number fits behind it
_MAX_NOTES = 50
_MAPPING = "must be a mapping of keys to values"
_TRANSPORTS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "remote": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "sse": "sse",
}
_ALIASES = {
    "type": "transport",
    "transportType": "transport",
    "isActive": "enabled",
    **dict.fromkeys(ADDRESS_KEYS[1:], "url"),
    **dict.fromkeys(ENVIRONMENT_KEYS[1:], "env"),
    "http_headers": "headers",
    "cmd": "command",
    "includeTools": "enabled_tools",
    "tools": "enabled_tools",
    "available_tools": "enabled_tools",
    "excludeTools": "disabled_tools",
    "disabledTools": "disabled_tools",
}
_IGNORED = {
    **dict.fromkeys(WITHOUT_EFFECT - {"bundled"} | {"source"}, "is ignored: it has no meaning for a gateway"),
    **dict.fromkeys(
        CONFIRMATIONS,
        "is ignored: it loosens nothing here; `confirm` says which calls need a yes, `tool_permissions` forbids tools "
        "for all clients",
    ),
    **dict.fromkeys(
        ("timeout", "startup_timeout_sec", "tool_timeout_sec", "initTimeout", "requestTimeout"),
        "is ignored: clients count in different units; set `timeouts: {call_s: 60}`, in seconds",
    ),
}
# Keys by which the owner protects a server. A block from elsewhere must neither set nor seem to set them.
_ONLY_OURS = frozenset(
    {"sandbox", "limits", "oauth", "credentials", "caller_headers", "confirm", "pin", "questions", "rates"}
    | {"tool_rates"}
)
# All that says how far the owner trusts a server; a block that somebody else wrote cannot have it.
OWNERS_WORD = _ONLY_OURS | {"trust_annotations"}
_FOR_SERVERS = "is ignored in a client's block, which others may have written; write the entry under `servers`"
_UNSUPPORTED = {
    "envFile": "is not supported; write its variables under `env`",
    **dict.fromkeys(
        ("auth", "headersHelper", "requestInit"),
        'is not supported; write a token under `headers`, such as `Authorization: "Bearer ${TOKEN}"`',
    ),
}
# Keys by which an entry under `servers` shows that it was pasted, too: VS Code's section has that name.
_CLIENTS_WORDS = frozenset({*_ALIASES, *_IGNORED, *_UNSUPPORTED, "disabled", "enabled_tools", "disabled_tools"})
_CLIENT_SETTINGS = frozenset(
    {
        "globalShortcut",
        "preferences",
        "isUsingBuiltInNodeForMcp",
        "isDxtAutoUpdatesEnabled",
        "scale",
        "$schema",
        "theme",
    }
)
_OFF = frozenset({"off", "none", "no", "false", "disabled"})
_OTHER_SECTIONS = ("context_servers", "extensions", "mcp", "mcp_servers")


def accept_pasted(document: Document) -> None:
    """Replace `document.data` by our form. Problems and notes keep the positions of what was written."""
    if not isinstance(document.data, dict):
        return
    document.data = dict(document.data)
    _Pasted(document, document.data).accept()


def mended_id(name: str) -> str:
    """The id that a written name gets: itself if it is valid, otherwise of a path the last part, without what an id
    must not contain. Empty: nothing is left of it.
    """
    if len(name) <= 64 and re.fullmatch(ID_PATTERN, name):
        return name
    last = name.rstrip("/").rpartition("/")[2]
    return re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", last)).strip("-")[:MAX_ID]


def tool_permissions(allowed: Sequence[str] | None, denied: Sequence[str]) -> dict[str, bool]:
    """A client's choice of tools as our `tool_permissions`. `allowed` is None if the client names no such list."""
    chosen = {} if allowed is None or "*" in allowed else {"*": False, **dict.fromkeys(allowed, True)}
    return {**chosen, **dict.fromkeys(denied, False)}


class _Pasted:
    """One file. `data` is its top level, which is changed in place."""

    def __init__(self, document: Document, data: dict[str, Any]) -> None:
        self._document = document
        self._data = data
        self._ignored: dict[str, tuple[KeyPath, int]] = {}  # by key: where it is written first, and how often

    def accept(self) -> None:
        self._accept_inputs()
        self._accept_top_level()
        self._accept_optimization()
        for section in ("servers", CLIENT_SECTION, "projects", "tokens"):
            self._reject_list(section)
        self._accept_servers()
        for key, (path, count) in self._ignored.items():
            more = f" (also in {count - 1} more {'place' if count == 2 else 'places'})" if count > 1 else ""
            reason = "is ignored: it is a setting of the client" if len(path) == 1 else _IGNORED.get(key, _FOR_SERVERS)
            self._document.add_note(path, reason + more)

    def _accept_inputs(self) -> None:
        """VS Code's questions to the person at the editor."""
        inputs = self._data.get("inputs")
        if not isinstance(inputs, list):
            return
        del self._data["inputs"]
        names = [one["id"] for one in inputs if isinstance(one, dict) and isinstance(one.get("id"), str)]
        if names:
            listed = ", ".join(f"`${{input:{name}}}` is {input_variable(name)}" for name in names[:10])
            self._document.add_note(("inputs",), f"a gateway cannot ask; environment variables are used: {listed}")

    def _accept_top_level(self) -> None:
        for key, value in list(self._data.items()):
            if key in GatewayConfig.model_fields or key == CLIENT_SECTION:
                continue
            reason = None
            if key in _CLIENT_SETTINGS:
                self._ignore((key,))
            elif key in ADDRESS_KEYS or key in ("command", "args"):
                reason = "belongs to a server; write `servers:`, below it an id such as `time:`, and this below the id"
            elif isinstance(value, dict):
                reason = _misplaced(key, value)
            if reason is not None:
                self._document.add_problem((key,), reason, key=True)
            if reason is not None or key in _CLIENT_SETTINGS:
                del self._data[key]

    def _accept_optimization(self) -> None:
        projects = self._data.get("projects")
        if isinstance(projects, dict):
            self._data["projects"] = {key: _switched_off(project) for key, project in projects.items()}
        if "unassigned" in self._data:
            self._data["unassigned"] = _switched_off(self._data["unassigned"])

    def _reject_list(self, section: str) -> None:
        entries = self._data.get(section)
        if not isinstance(entries, list):
            return
        first = entries[0] if entries else None
        name = first.get("name") or next(iter(first), None) if isinstance(first, dict) else first
        example = name if isinstance(name, str) and mended_id(name) == name and name not in self._outside else "id"
        reason = f"is a list, but must be a mapping; write `{example}:` instead of `-`, and its keys below it"
        self._document.reject((section,), reason, key=True)

    @property
    def _outside(self) -> set[str]:
        return self._document.external_texts

    def _accept_servers(self) -> None:
        """Merge both sections into `servers`, each entry translated and under a valid id."""
        own, pasted = self._data.get("servers"), self._data.pop(CLIENT_SECTION, None)
        if pasted is not None and not isinstance(pasted, dict | list):
            self._document.add_problem((CLIENT_SECTION,), _MAPPING)
        if own is not None and not isinstance(own, dict):
            return  # reported already, or by the model
        merged: dict[str, Any] = {}
        origins: dict[str, KeyPath] = {}
        for section, entries in (("servers", own), (CLIENT_SECTION, pasted)):
            for name, entry in entries.items() if isinstance(entries, dict) else ():
                server_id, path = mended_id(name) or name, (section, name)
                if server_id in origins:
                    self._document.add_problem(path, _same_id(server_id, path, origins[server_id]), key=True)
                    continue
                origins[server_id] = path
                merged[server_id] = self._accept_server(server_id, path, entry)
        if merged or own is not None:
            self._data["servers"] = merged

    def _accept_server(self, server_id: str, path: KeyPath, entry: Any) -> Any:
        target: KeyPath = ("servers", server_id)
        if path != target:
            self._document.record_move(target, path)
        if isinstance(entry, str) and not self._document.is_unresolved(target):
            self._document.reject(target, _text_as_entry("" if entry in self._outside else entry))
        if not isinstance(entry, dict):
            return entry
        if path[1] == CLIENT_SECTION and all(isinstance(value, dict) for value in entry.values()):
            self._document.reject(target, "is a section, not a server; write it at the top level", key=True)
            return entry
        server = _Translation(self._document, target, dict(entry), in_client_section=path[0] == CLIENT_SECTION)
        self._reject_secrets(path, entry)
        server.translate()
        for key in server.ignored:
            self._ignore((*target, key))
        if path[1] != server_id:
            server.entry.setdefault("name", path[1])
            if len(self._document.notes) < _MAX_NOTES:
                self._document.add_note(target, f"has the id `{server_id}` here and keeps this name for display")
        return server.entry

    def _reject_secrets(self, path: KeyPath, entry: Mapping[str, Any]) -> None:
        """Somebody else may have written the block: it must neither run a program nor read the owner's keyring."""
        if path[0] != CLIENT_SECTION and _CLIENTS_WORDS.isdisjoint(entry):
            return
        for at in self._document.secrets:
            if at[: len(path)] == path:
                self._document.reject(
                    at,
                    "`${cmd:...}` and `${keyring:...}` are not read from a client's block, which others may have "
                    "written; write the entry under `servers`, with our keys",
                )

    def _ignore(self, path: KeyPath) -> None:
        key = str(path[-1])
        first, count = self._ignored.get(key, (path, 0))
        self._ignored[key] = first, count + 1


class _Translation(Struct):
    """One server. `entry` is changed in place from the client's form to ours; `target` is where it will be."""

    document: Document
    target: KeyPath
    entry: dict[str, Any]
    in_client_section: bool
    ignored: tuple[str, ...] = ()

    def translate(self) -> None:
        # `trust_annotations: false` only tightens, and is obeyed.
        loosens = self.in_client_section and self.entry.get("trust_annotations", False) is not False
        self.ignored = tuple(key for key in self.entry if key in _IGNORED or (loosens and key == "trust_annotations"))
        for key in self.ignored:
            del self.entry[key]
        for key in [key for key in self.entry if key in _UNSUPPORTED]:
            self._problem(key, _UNSUPPORTED[key], key=True)
            del self.entry[key]
        if self.in_client_section:
            for key in [key for key in self.entry if key in _ONLY_OURS]:
                self._problem(key, f"is not read from `{CLIENT_SECTION}`; move the server to `servers`", key=True)
                del self.entry[key]
        if self.entry.get("available_tools") == []:  # Goose: all of them
            del self.entry["available_tools"]
        written_as = self._rename_keys()
        self._translate_transport(written_as.get("transport"))
        self._translate_disabled()
        self._translate_tools()
        self._check_command()
        self._check_texts()

    def _rename_keys(self) -> dict[str, str]:
        """Return the keys that were written differently: what they are now, and what they were."""
        renamed: dict[str, str] = {}
        for written, key in _ALIASES.items():
            if written not in self.entry:
                continue
            value = self.entry.pop(written)
            if key in self.entry:
                self._problem(written, f"means the same as `{renamed.get(key, key)}`; keep one of them", key=True)
                continue
            self.entry[key] = value
            renamed[key] = written
            self.document.record_move((*self.target, key), self.document.origin((*self.target, written)))
        return renamed

    def _translate_transport(self, written_as: str | None) -> None:
        kind = self.entry.get("transport")
        transport = _TRANSPORTS.get(kind.lower()) if isinstance(kind, str) else None
        if transport is not None:
            self.entry["transport"] = transport
        elif written_as is not None and kind is not None:
            shown = isinstance(kind, str) and kind not in self.document.external_texts
            hint = closest(str(kind), _TRANSPORTS) if shown else None
            reason = "must be `stdio`, `http`, `streamable-http` or `sse`"
            self.document.add_problem((*self.target, "transport"), reason, hint)
            del self.entry["transport"]
        elif kind is None and self.in_client_section and _ends_in_sse(self.entry.get("url")):
            self.entry["transport"] = "sse"  # where a block names no transport, clients find it out by trying

    def _translate_disabled(self) -> None:
        if "disabled" not in self.entry:
            return
        disabled = self.entry.pop("disabled")
        if "enabled" in self.entry:
            self._problem("disabled", "means the same as `enabled`; keep one of them", key=True)
        elif isinstance(disabled, bool):
            self.entry["enabled"] = not disabled
        elif disabled is not None:
            self._problem("disabled", "must be true or false")

    def _translate_tools(self) -> None:
        lists: dict[str, list[str]] = {}
        for key in ("enabled_tools", "disabled_tools"):
            names = self.entry.pop(key, None)
            if isinstance(names, list) and all(isinstance(name, str) for name in names):
                lists[key] = names
            elif names is not None:
                self._problem(key, "must be a list of names of tools, like [first, second]")
            if key in lists and "tool_permissions" in self.entry:
                self._problem(key, "means the same as `tool_permissions`; keep one of them", key=True)
                del lists[key]
        if lists:
            permissions = tool_permissions(lists.get("enabled_tools"), lists.get("disabled_tools", []))
            self.entry["tool_permissions"] = permissions

    def _check_command(self) -> None:
        command = self.entry.get("command")
        if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
            words = command
        elif isinstance(command, str):
            words = _words(command)
        else:
            return
        if isinstance(command, str) and len(words) < 2:
            return
        if "//" in words:
            self._reject("command", NO_COMMENT.format("//"))
            return
        if any(word in self.document.external_texts for word in (command, *words) if isinstance(word, str)):
            words = []
        self._reject("command", f"takes only the program; {_as_command(words, bool(self.entry.get('args')))}")

    def _check_texts(self) -> None:
        """Lists and mappings that were written as one text, or one as the other."""
        args, env = self.entry.get("args"), self.entry.get("env")
        if isinstance(args, str) and not self.document.is_unresolved((*self.target, "args")):
            words = [] if args in self.document.external_texts else _split(args)
            self._reject("args", f"must be a list; write {_as_list(words)}")
        if isinstance(env, list):
            self._reject("env", "must be a mapping; write `NAME: value` instead of `- NAME=value`", key=True)

    def _problem(self, name: str, reason: str, *, key: bool = False) -> None:
        self.document.add_problem((*self.target, name), reason, key=key)

    def _reject(self, name: str, reason: str, *, key: bool = False) -> None:
        self.document.reject((*self.target, name), reason, key=key)


def _misplaced(key: str, value: Mapping[str, Any]) -> str | None:
    """Why a mapping at the top level is a server, or a section of another client; None: it is neither."""
    if key in _OTHER_SECTIONS and isinstance(value.get("servers"), dict):
        return "is a section of VS Code's settings; move `servers` and `inputs` out of it, to the top level"
    if key in _OTHER_SECTIONS:
        return (
            f"is a client's section; rename it `{CLIENT_SECTION}`, or save it as a file and run `pointsman import FILE`"
        )
    if "command" in value or any(address in value for address in ADDRESS_KEYS):
        return "is a server, so it belongs below `servers:`; put that line above it and indent it"
    return None


def _text_as_entry(text: str) -> str:
    """What to write instead of a server that is only a text."""
    if text.startswith(("http://", "https://")):
        return "must be a mapping; write the address below it, as `url: ...`"
    if joined := re.match(r"([A-Za-z_]+):\S", text):
        return f"a space is missing after the colon; write `{joined[1]}: ...`"
    if equated := re.match(r"([A-Za-z_]+) ?= ?\S", text):
        return f"a colon is needed, not `=`; write `{equated[1]}: ...`"
    words = _split(text)
    return f"must be a mapping; below it, {_as_command(words, more=False)}" if words else _MAPPING


def _switched_off(project: Any) -> Any:
    strategy = project.get("optimization") if isinstance(project, dict) else None
    if strategy is False or (isinstance(strategy, str) and strategy.lower() in _OFF):
        return {**project, "optimization": None}
    return project


def _same_id(server_id: str, path: KeyPath, other: KeyPath) -> str:
    if path[1] == other[1]:
        return f"is also defined under `{other[0]}`; keep one of them"
    return f"gets the same id `{server_id}` as `{render(other)}`; rename one of them"


def _ends_in_sse(url: Any) -> bool:
    return isinstance(url, str) and url.partition("?")[0].rstrip("/").endswith("/sse")


def _words(command: str) -> list[str]:
    """The words of a command line; one word if it is the name of a program, which may contain spaces."""
    words = _split(command)
    if len(words) < 2 or os.path.exists(command):
        return [command]
    return words if "/" not in words[0] or os.path.isfile(words[0]) else [command]


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # an open quote
        return line.split()


def _as_command(words: Sequence[str], more: bool) -> str:
    if not words or _unfit_to_show(words):
        return "write its arguments under `args`, each as an item of a list"
    if len(words) == 1:
        return f"write `command: {words[0]}`"
    args = ", ".join([*(_item(word) for word in words[1:]), *(["..."] if more else [])])
    return f"write `command: {words[0]}` and `args: [{args}]`"


def _as_list(words: Sequence[str]) -> str:
    if not words or _unfit_to_show(words):
        return "each argument as an item, like [first, second]"
    return f"`args: [{', '.join(_item(word) for word in words)}]`"


def _unfit_to_show(words: Sequence[str]) -> bool:
    return (
        len(words) > 20 or sum(map(len, words)) > 200 or any(holds_secret(word) for word in (*words, " ".join(words)))
    )


def _item(word: str) -> str:
    return word if re.fullmatch(r"[A-Za-z0-9_./-][A-Za-z0-9_./@=+-]*", word) else "'" + word.replace("'", "''") + "'"
