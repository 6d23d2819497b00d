"""A configuration for human eyes: everything that is or looks like a secret is masked."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from pointsman.config.model import GatewayConfig, Part, Server, ServerTimeouts

MASK = "********"

_TELLING_NAME = re.compile(r"token|key|secret|passw|pwd|auth|credential|bearer|cookie|session", re.IGNORECASE)
_KNOWN_SHAPE = re.compile(
    r"\b(sk|pk|rk)[-_]\w|\bgh[pousr]_|github_pat_|glpat-|xox[a-z]-|\bAKIA|\beyJ|ptm_|"
    r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-"
)
_NOTHING: tuple[object, ...] = ((), {}, ServerTimeouts())
_LONG_RUN = re.compile(r"[A-Za-z0-9]{16,}")
_ASSIGNMENT = re.compile(r"([^=:\s]+)(=|:\s*)(.+)", re.DOTALL)


def masked(config: GatewayConfig, filled: Collection[str] = ()) -> dict[str, Any]:
    """Plain data for YAML or JSON. `filled` are the texts that came from outside the file."""
    return _part(config, filled)


def _part(part: Part, filled: Collection[str]) -> dict[str, Any]:
    shown = {}
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if value is None and field.default is None:
            continue  # says nothing
        if isinstance(part, Server) and value in _NOTHING:
            continue  # a server has many keys, and most of them are for others of its kind
        if isinstance(part, Server) and name == "args":
            shown[name] = mask_args(part.args, filled)
        elif name == "sha256":  # not a secret, though it looks like one
            shown[name] = value
        else:
            shown[name] = _value(value, filled)
    return shown


def _value(value: object, filled: Collection[str]) -> Any:
    if isinstance(value, Part):
        return _part(value, filled)
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, Mapping):
        return {key: _value(item, filled) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_value(item, filled) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, str) and "://" in value:
        return mask_url(value, filled)
    return value


def mask_args(args: Sequence[str], filled: Collection[str] = ()) -> list[str]:
    shown: list[str] = []
    previous = ""
    for arg in args:
        follows_a_telling_flag = previous.startswith("-") and "=" not in previous and _TELLING_NAME.search(previous)
        if follows_a_telling_flag and not arg.startswith("-"):
            shown.append(MASK)
        else:
            shown.append(_mask_arg(arg, filled))
        previous = arg
    return shown


def mask_url(url: str, filled: Iterable[str] = ()) -> str:
    """Host and plain path stay; user, query values and path segments that look like secrets go."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    host = parts.netloc.rpartition("@")
    netloc = f"{MASK}@{host[2]}" if host[1] else parts.netloc
    hidden = url in filled  # part of it came from outside, and nobody can tell which part
    path = "/".join(MASK if _looks_secret(step) or (hidden and step) else step for step in parts.path.split("/"))
    query = "&".join(_mask_pair(pair) for pair in parts.query.split("&")) if parts.query else ""
    return urlunsplit((parts.scheme, netloc, path, query, MASK if parts.fragment else ""))


def _mask_arg(arg: str, filled: Collection[str]) -> str:
    if "://" in arg:
        return mask_url(arg, filled)
    secret = arg in filled or _looks_secret(arg)
    assignment = _ASSIGNMENT.fullmatch(arg)
    if assignment and (secret or _TELLING_NAME.search(assignment[1])):
        return f"{assignment[1]}{assignment[2]}{MASK}"
    return MASK if secret else arg


def _mask_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={MASK}" if equals else MASK


def _looks_secret(text: str) -> bool:
    if _KNOWN_SHAPE.search(text):
        return True
    runs = _LONG_RUN.findall(text)
    return any(not run.isalpha() and not run.isdigit() for run in runs)
