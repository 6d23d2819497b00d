"""The servers in a client's file, in the form of our configuration: other keys, other variable syntax, same meaning."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pointsman.config.pasted import (
    ADDRESS_KEYS,
    CONFIRMATIONS,
    ENVIRONMENT_KEYS,
    OWNERS_WORD,
    WITHOUT_EFFECT,
    tool_permissions,
)
from pointsman.config.secrets import PREFIX
from pointsman.config.yaml.references import input_variable
from pointsman.router.clients.client_file import ClientFileError, parsed, read
from pointsman.router.clients.dialects import DIALECTS, Dialect, Format, project_file, user_file
from pointsman.router.clients.registry import is_registry_entry, registry_entries, registry_server

MAX_SERVERS = 500  # of one file
MAX_NAME = 256  # of a server, a variable, a header or a tool
_SSE = frozenset({"sse"})
_UNDERSTOOD = frozenset(
    {
        *ADDRESS_KEYS,
        *ENVIRONMENT_KEYS,
        "command",
        "cmd",
        "args",
        "cwd",
        "headers",
        "http_headers",
        "env_http_headers",
        "type",
    }
    | {"transport", "enabled", "disabled", "env_keys", "env_vars", "bearer_token_env_var", "source", "name"}
    | {"startup_timeout_sec", "tool_timeout_sec", "timeout", "enabled_tools", "disabled_tools", "includeTools"}
    | {"excludeTools", "disabledTools", "tools", "available_tools"}
)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_UNREADABLE = "a value in it is neither text nor a number of usual length"
_FOLDER = re.compile(r"\$\{workspaceFolder(?:Basename)?[^}]*\}")
_NAME = r"([A-Za-z_][A-Za-z0-9_]*)"
_ANY_FORM = ("${env:NAME}", "{env:NAME}", "${NAME}")


@dataclass(frozen=True, slots=True)
class Found:
    """One server: `server` is in our form, with our references and with secrets as they were written."""

    source: str
    name: str
    server: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    source: str
    name: str
    reason: str


@dataclass(slots=True)
class Findings:
    servers: list[Found] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # files that could not be read


def of_client(dialect: Dialect, environ: Mapping[str, str], folder: Path | None = None) -> Findings:
    """The servers in the client's file of this user, or in that of the project in `folder`."""
    findings = Findings()
    path = user_file(dialect, environ) if folder is None else project_file(dialect, folder)
    if path is None:
        return findings
    try:
        data = read(path, dialect.format).data
    except ClientFileError as error:
        findings.problems.append(str(error))
        return findings
    for section, notes in _sections(dialect, data):
        _take_up(section, dialect.title, _forms(dialect), environ, findings, notes)
    return findings


def offer(environ: Mapping[str, str], own_url: str) -> str | None:
    """In which clients of this user there are servers, and how many; None: in none. Names no value of any."""
    counts = []
    for dialect in DIALECTS.values():
        count = count_servers(of_client(dialect, environ), (own_url,))
        if count:
            counts.append(f"{dialect.title} ({count})")
    return ", ".join(counts) or None


def count_servers(findings: Findings, own_urls: Collection[str]) -> int:
    """How many servers can be imported, without this gateway."""
    return sum(not points_here(found.server, own_urls) for found in findings.servers)


def of_text(text: str, name: str, environ: Mapping[str, str]) -> Findings:
    """The servers in a text of any of the known forms. Raises ClientFileError."""
    data = _any_format(text, name)
    findings = Findings()
    if is_registry_entry(data):
        for entry in islice(registry_entries(data), MAX_SERVERS):
            shown = str(entry["name"])[:MAX_NAME]
            try:
                server, notes, reason = registry_server(entry)
            except ValueError:
                findings.left_out.append(LeftOut(name, shown, _UNREADABLE))
                continue
            if reason is not None:
                findings.left_out.append(LeftOut(name, shown, reason))
            else:
                findings.servers.append(Found(name, shown, server, notes))
        return findings
    sections = [data[key] for key in _section_keys() if isinstance(data.get(key), Mapping)]
    if not sections and any(isinstance(one, Mapping) and _unusable(one) is None for one in data.values()):
        sections = [data]  # the entries alone
    if not sections and any(key in data for key in ("command", *ADDRESS_KEYS)):
        own = data.get("name")
        sections = [{own if isinstance(own, str) and own else Path(name).stem or "server": data}]
    if not sections:
        keys = ", ".join(f"`{key}`" for key in _section_keys())
        raise ClientFileError(f"{name} has no servers: none of the keys {keys}, and no `command` or `url`.")
    for section in sections:
        _take_up(section, name, _ANY_FORM, environ, findings)
    return findings


def points_here(server: Mapping[str, Any], own_urls: Collection[str]) -> bool:
    """Whether a server of a client's file is this gateway: by its address, its token or its command."""
    return leads_here(server, own_urls) or PREFIX in json.dumps(server, default=str)


def leads_here(server: Mapping[str, Any], own_urls: Collection[str]) -> bool:
    """Whether a server has this gateway's address, or is `pointsman stdio`, which connects to it."""
    line = [str(server.get("command") or ""), *map(str, server.get("args") or ())]
    urls = [text for text in (str(server.get("url") or ""), *line) if text.startswith(("http://", "https://"))]
    if any(_same_place(url, own) for url in urls for own in own_urls):
        return True
    names = {Path(part).name.partition("@")[0] for part in line}
    return "pointsman" in names and "stdio" in names


def _take_up(
    section: Mapping[str, Any],
    source: str,
    forms: Sequence[str],
    environ: Mapping[str, str],
    findings: Findings,
    notes: tuple[str, ...] = (),  # on each server of the section
) -> None:
    for key, entry in islice(section.items(), MAX_SERVERS):
        name = key[:MAX_NAME] if isinstance(key, str) else "?"
        if not isinstance(entry, Mapping):
            findings.left_out.append(LeftOut(source, name, "its entry is not a mapping of keys to values"))
            continue
        if isinstance(entry.get("config"), Mapping):  # older files of Goose
            entry = {**entry, **entry["config"]}
        try:
            reason = _unusable(entry)
            if reason is None:
                found = _translated(source, name, entry, _References(forms, entry, environ))
                findings.servers.append(replace(found, notes=(*notes, *found.notes)))
        except ValueError:
            reason = _UNREADABLE
        if reason is not None:
            findings.left_out.append(LeftOut(source, name, reason))


def _unusable(entry: Mapping[str, Any]) -> str | None:
    """Why an entry cannot be imported; None: it can."""
    if _address(entry) is None and not _command_line(entry):
        kind = entry.get("type")
        if kind in ("builtin", "platform", "frontend", "inline_python"):
            return "it is built into the client"
        if "settings" in entry or entry.get("source") == "extension":
            return "it is an extension of the client"
        return "it has neither a command nor a URL"
    if _FOLDER.search(repr(entry)):
        return "it refers to the folder that is open in the editor; add it by hand with that path"
    return _misshapen(entry)


def _misshapen(entry: Mapping[str, Any]) -> str | None:
    """Which key has no list or mapping where it should; without it, the server would be another one."""
    if not isinstance(entry.get("args"), list | None):
        return "its `args` is not a list"
    keys = (key for key in (*ENVIRONMENT_KEYS, "headers", "http_headers", "env_http_headers") if key in entry)
    wrong = next((key for key in keys if not isinstance(entry[key], Mapping | None)), None)
    return f"its `{wrong}` is not a mapping of names to values" if wrong is not None else None


def _translated(source: str, name: str, entry: Mapping[str, Any], references: _References) -> Found:
    server: dict[str, Any] = {}
    line = _command_line(entry)
    if line:
        server["command"] = references.converted(line[0])
        server["args"] = [references.converted(arg, argument=True) for arg in line[1:]]
        server["env"] = _environment(entry, references)
        if isinstance(entry.get("cwd"), str):
            server["cwd"] = references.converted(entry["cwd"])
    else:
        address = str(_address(entry))
        server["url"] = references.converted(address)
        if _is_sse(entry, address):
            server["transport"] = "sse"
        server["headers"] = _headers(entry, references)
    if entry.get("disabled") is True or entry.get("enabled") is False:
        server["enabled"] = False
    server |= _limits(entry)
    server = {key: value for key, value in server.items() if value not in ([], {}, "")}
    known = _UNDERSTOOD | WITHOUT_EFFECT | CONFIRMATIONS | OWNERS_WORD | {"config"}
    strange = sorted(_key(key) for key in entry if key not in known)
    notes = [f"`{key}` has no counterpart here and is left out" for key in strange[:10]]
    notes += [
        f"`{key}` is left out of a client's block, which others may have written; set it under `servers` yourself"
        for key in sorted(OWNERS_WORD.intersection(entry))
    ]
    notes += [
        f"`{key}` is left out: it loosens nothing here; `confirm` under `servers` says which calls need a yes"
        for key in sorted(CONFIRMATIONS.intersection(entry))
    ]
    if "timeout" in entry:
        notes.append("`timeout` is left out, because clients count in different units; set `timeouts: {call_s: 60}`")
    if server.get("enabled") is False:
        notes.append("stays disabled, as it is there; `pointsman server enable NAME` enables it")
    if references.names:
        names = ", ".join(sorted(references.names))
        notes.append(f"needs {names} in the gateway's environment; empty where that is not set")
    return Found(source, name, server, tuple(notes))


def _command_line(entry: Mapping[str, Any]) -> list[str]:
    command: Any = entry.get("command", entry.get("cmd"))
    args: Any = entry.get("args")
    if isinstance(command, Mapping):  # older files of Zed
        command, args = command.get("path"), command.get("args")
    if isinstance(command, list):
        command, args = (command[0] if command else None), [*command[1:], *(args if isinstance(args, list) else [])]
    if not isinstance(command, str) or not command.strip():
        return []
    rest = [_text(arg) for arg in args] if isinstance(args, list) else []
    if " " in command.strip() and not os.path.exists(command):
        try:
            return [*shlex.split(command), *rest]
        except ValueError:
            pass  # an open quote: a strange name, but a name
    return [command, *rest]


def _address(entry: Mapping[str, Any]) -> str | None:
    return next((entry[key] for key in ADDRESS_KEYS if isinstance(entry.get(key), str) and entry[key]), None)


def _is_sse(entry: Mapping[str, Any], address: str) -> bool:
    kind = _text(entry.get("type") or entry.get("transport") or "").lower()
    if kind in ("", "remote"):
        return address.partition("?")[0].rstrip("/").endswith("/sse")
    return kind in _SSE


def _environment(entry: Mapping[str, Any], references: _References) -> dict[str, str]:
    found: dict[str, str] = {}
    for key in ENVIRONMENT_KEYS:
        found |= _texts(entry.get(key), references)
    if isinstance(entry.get("command"), Mapping):
        found |= _texts(entry["command"].get("env"), references)
    for key in ("env_keys", "env_vars"):
        names = entry.get(key)
        for name in names if isinstance(names, list) else ():
            if isinstance(name, str) and name not in found:
                found[_key(name)] = references.to_variable(name)
    return found


def _headers(entry: Mapping[str, Any], references: _References) -> dict[str, str]:
    found = _texts(entry.get("headers"), references) | _texts(entry.get("http_headers"), references)
    variables = entry.get("env_http_headers")
    for header, variable in variables.items() if isinstance(variables, Mapping) else ():
        found[_key(header)] = references.to_variable(_key(variable))
    if isinstance(entry.get("bearer_token_env_var"), str):
        found["Authorization"] = f"Bearer {references.to_variable(entry['bearer_token_env_var'])}"
    return found


def _texts(values: Any, references: _References) -> dict[str, str]:
    if not isinstance(values, Mapping):
        return {}
    return {_key(key): references.converted(_text(value)) for key, value in values.items() if value is not None}


def _key(value: Any) -> str:
    """The name of a variable, a header or an option. Raises ValueError."""
    text = _text(value)
    if len(text) > MAX_NAME:
        raise ValueError("too long for a name")
    return text


def _text(value: Any) -> str:
    """Raises ValueError."""
    if not isinstance(value, str | int | float):
        raise ValueError("neither text nor a number")  # noqa: TRY004 - as for a number that is too long
    return str(value).lower() if isinstance(value, bool) else str(value)


def _limits(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Time-outs and the choice of tools."""
    limits: dict[str, Any] = {}
    timeouts = {
        ours: float(entry[theirs])
        for theirs, ours in (("startup_timeout_sec", "connect_s"), ("tool_timeout_sec", "call_s"))
        if isinstance(entry.get(theirs), int | float) and 0 < entry[theirs] <= 86_400
    }
    if timeouts:
        limits["timeouts"] = timeouts
    denied = _names(entry, "disabled_tools", "excludeTools", "disabledTools")
    lists = [key for key in ("enabled_tools", "includeTools", "tools") if isinstance(entry.get(key), list)]
    lists += ["available_tools"] if entry.get("available_tools") else []  # Goose: an empty one means all
    permissions = tool_permissions(_names(entry, *lists) if lists else None, denied)
    if permissions:
        limits["tool_permissions"] = permissions
    return limits


def _names(entry: Mapping[str, Any], *keys: str) -> list[str]:
    lists = (entry.get(key) for key in keys)
    return [
        name
        for one in lists
        if isinstance(one, list)
        for name in one
        if isinstance(name, str) and len(name) <= MAX_NAME
    ]


class _References:
    """Turns a client's references to variables into ours, and remembers their names. All else is literal."""

    def __init__(self, forms: Sequence[str], entry: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        escaped = (
            re.escape(form).replace("NAME", _NAME + r"(?::-([^}]*))?" if "}" in form else _NAME) for form in forms
        )
        inputs = re.escape("${input:NAME}").replace("NAME", r"([^}]+)")
        files = [r"\{file:([~/][^}]*)\}"] if "{env:NAME}" in forms else []  # OpenCode's
        self._pattern = re.compile("|".join([*escaped, inputs, *files]))
        own = {name for key in ENVIRONMENT_KEYS if isinstance(entry.get(key), Mapping) for name in entry[key]}
        self._own = own - environ.keys()
        self._home = environ.get("HOME", "")
        self.names: set[str] = set()

    def converted(self, text: str, *, argument: bool = False) -> str:
        text = text.replace("${userHome}", self._home).replace("${pathSeparator}", "/").replace("${/}", "/")
        result, position = "", 0
        for match in self._pattern.finditer(text):
            name = next(group for group in match.groups() if group)
            if argument and name in self._own:  # a program such as mcp-remote expands it, from the entry's `env`
                continue
            result += _literal(text[position : match.start()]) + self._reference(match, name)
            position = match.end()
        return result + _literal(text[position:])

    def to_variable(self, name: str) -> str:
        self.names.add(name)
        return f"${{{name}:-}}"

    def _reference(self, match: re.Match[str], name: str) -> str:
        groups = [group for group in match.groups() if group]
        if len(groups) > 1 and "$" not in groups[1]:
            return f"${{{name}:-{groups[1]}}}"
        if match[0].startswith("{file:"):
            return f"${{file:{name.replace('~', self._home, 1) if name.startswith('~/') else name}}}"
        return self.to_variable(input_variable(name) if match[0].startswith("${input:") else name)


def _literal(text: str) -> str:
    return text.replace("${", "$${")


def _forms(dialect: Dialect) -> tuple[str, ...]:
    return (dialect.variable, *dialect.more_variables) if dialect.variable is not None else ()


def _sections(dialect: Dialect, data: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], tuple[str, ...]]]:
    """Each section of servers, and notes on them."""
    section = data.get(dialect.section)
    if isinstance(section, Mapping):
        yield section, ()
    projects = data.get("projects")
    if dialect.name != "claude-code" or not isinstance(projects, Mapping):
        return
    for folder, project in projects.items():  # `claude mcp add` without a scope writes there
        section = project.get(dialect.section) if isinstance(project, Mapping) else None
        if isinstance(section, Mapping):
            yield section, (f"{dialect.title} uses it in {str(folder)[:MAX_NAME]} only; here, every client can use it",)


def _section_keys() -> list[str]:
    return list(dict.fromkeys(dialect.section for dialect in DIALECTS.values()))


def _any_format(text: str, name: str) -> Mapping[str, Any]:
    """Read a text of any format: as its name says, or as the first that fits."""
    suffix = Path(name).suffix.lower()
    by_suffix: dict[str, Format] = {".json": "json", ".jsonc": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
    if suffix in by_suffix:
        return parsed(text, by_suffix[suffix], name)
    kinds: tuple[Format, ...] = ("json",) if text.lstrip()[:1] in ("{", "/") else ("toml", "yaml")
    first: ClientFileError | None = None
    for kind in kinds:
        try:
            return parsed(text, kind, name)
        except ClientFileError as error:
            first = first or error
    assert first is not None
    raise first


def _same_place(url: str, own_url: str) -> bool:
    try:
        one, own = urlsplit(url), urlsplit(own_url)
        ports = [part.port or {"http": 80, "https": 443}.get(part.scheme) for part in (one, own)]
    except ValueError:
        return False
    hosts = {one.hostname, own.hostname}
    return ports[0] == ports[1] and (len(hosts) == 1 or hosts <= _LOOPBACK)
