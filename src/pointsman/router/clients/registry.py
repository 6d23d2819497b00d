"""A server of the MCP registry (`server.json`) in the form of our configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Server = dict[str, Any]

_VARIABLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MAX_NAME = 256
_RUNTIMES = {"npm": "npx", "pypi": "uvx", "oci": "docker", "nuget": "dnx"}


def is_registry_entry(data: Mapping[str, Any]) -> bool:
    return next(registry_entries(data), None) is not None


def registry_entries(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The entries in a `server.json`, or in an answer of the registry with one or many of them."""
    listed = data.get("servers")
    for one in listed if isinstance(listed, list) else [data]:
        entry = one.get("server", one) if isinstance(one, Mapping) else None
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            continue
        if isinstance(entry.get("packages"), list) or isinstance(entry.get("remotes"), list):
            yield entry


def registry_server(entry: Mapping[str, Any]) -> tuple[Server, tuple[str, ...], str | None]:
    """Return the server, notes for the user, and the reason if the entry has no usable server."""
    values = _Values()
    packages = [one for one in entry.get("packages") or () if isinstance(one, Mapping)]
    package = next((one for one in packages if _runnable(one)), None)
    if package is not None:
        return _from_package(package, values), values.notes(), None
    remotes = [
        one for one in entry.get("remotes") or () if isinstance(one, Mapping) and isinstance(one.get("url"), str)
    ]
    remotes.sort(key=lambda one: _get(one, "type", "transportType") != "streamable-http")
    if remotes:
        return _from_remote(remotes[0], values), values.notes(), None
    return {}, (), "it has no package that npx, uvx, docker or dnx can start, and no remote address"


def _runnable(package: Mapping[str, Any]) -> bool:
    transport = package.get("transport")
    stdio = not isinstance(transport, Mapping) or transport.get("type", "stdio") == "stdio"
    return stdio and _get(package, "registryType") in _RUNTIMES and isinstance(package.get("identifier"), str)


def _from_package(package: Mapping[str, Any], values: _Values) -> Server:
    kind = str(_get(package, "registryType"))
    hint = _get(package, "runtimeHint")
    command = (
        hint if isinstance(hint, str) and hint in ("npx", "uvx", "docker", "podman", "dnx", "bunx") else _RUNTIMES[kind]
    )
    identifier, version = _literal(str(package["identifier"])), package.get("version")
    mark = ":" if kind == "oci" else "@"
    if isinstance(version, str) and version and mark not in identifier.rpartition("/")[2]:
        identifier += f"{mark}{_literal(version)}"
    environment = values.named(_get(package, "environmentVariables"))
    runtime = values.arguments(_get(package, "runtimeArguments"))
    if kind == "oci":
        forwarded = [part for name in environment for part in ("-e", name)]
        runtime = ["run", "-i", "--rm", *forwarded, *(one for one in runtime if one not in ("run", "-i", "--rm"))]
    elif command == "npx" and "-y" not in runtime:
        runtime = ["-y", *runtime]
    args = [*runtime, identifier, *values.arguments(_get(package, "packageArguments"))]
    server: Server = {"command": command, "args": args}
    return {**server, "env": environment} if environment else server


def _from_remote(remote: Mapping[str, Any], values: _Values) -> Server:
    server: Server = {"url": values.filled(str(remote["url"]), remote.get("variables"))}
    if _get(remote, "type", "transportType") == "sse":
        server["transport"] = "sse"
    headers = values.named(remote.get("headers"))
    return {**server, "headers": headers} if headers else server


class _Values:
    """Values that the entry leaves to the person become references to variables; their names are remembered."""

    def __init__(self) -> None:
        self._needed: dict[str, str] = {}

    def notes(self) -> tuple[str, ...]:
        return tuple(f"needs {name} in the gateway's environment{text}" for name, text in self._needed.items())

    def named(self, inputs: Any) -> dict[str, str]:
        """Environment variables or headers."""
        found = {}
        for one in _mappings(inputs):
            name = one.get("name")
            if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
                continue
            value = self._value(one, name)
            if value is not None:
                found[name] = value
        return found

    def arguments(self, inputs: Any) -> list[str]:
        args: list[str] = []
        for one in _mappings(inputs):
            name = one.get("name") if one.get("type") == "named" else None
            hint = str(_get(one, "valueHint") or name or "argument").lstrip("-")
            value = self._value(one, hint)
            if isinstance(name, str):
                args.append(_literal(name))
            if value is not None:
                args.append(value)
            elif isinstance(name, str) and one.get("format") not in (None, "boolean"):
                args.pop()  # an option that needs a value and has none
        return args

    def filled(self, text: str, variables: Any) -> str:
        known = variables if isinstance(variables, Mapping) else {}

        def replaced(match: re.Match[str]) -> str:
            described = known.get(match[1])
            if not isinstance(described, Mapping):
                return match[0]
            value = self._value({**described, "isRequired": True}, match[1])
            return value or ""

        escaped, position, result = _literal(text), 0, ""
        for match in _VARIABLE.finditer(escaped):
            result = _joined(_joined(result, escaped[position : match.start()]), replaced(match))
            position = match.end()
        return _joined(result, escaped[position:])

    def _value(self, described: Mapping[str, Any], name: str) -> str | None:
        for key in ("value", "default"):
            value = described.get(key)
            if isinstance(value, str | int | float) and value != "":
                return self.filled(str(value), described.get("variables"))
        if not (_get(described, "isRequired") or _get(described, "isSecret")):
            return None
        variable = re.sub(r"\W", "_", name).upper()
        text = described.get("description")
        self._needed[variable] = f" ({text.strip()[:80]})" if isinstance(text, str) and text.strip() else ""
        return f"${{{variable}:-}}"


def _literal(text: str) -> str:
    return text.replace("${", "$${")


def _joined(text: str, more: str) -> str:
    """A `$` at the end and a `{` at the beginning stay literal: they must not become a reference of ours."""
    return f"{text}${more}" if text.endswith("$") and more.startswith("{") else text + more


def _mappings(values: Any) -> Sequence[Mapping[str, Any]]:
    return [one for one in values if isinstance(one, Mapping)] if isinstance(values, list) else []


def _get(mapping: Mapping[str, Any], *names: str) -> Any:
    """A value under its name of today or in the older spelling with `_`."""
    for name in names:
        for spelling in (name, re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), name)):
            if spelling in mapping:
                return mapping[spelling]
    return None
