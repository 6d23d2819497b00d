"""Renders a configuration for people, with everything masked that is or looks like a secret."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import SecretStr

from pointsman.config.model import GatewayConfig
from pointsman.config.sections.part import Part
from pointsman.config.sections.server import Server, ServerTimeouts

MASK = "********"

_SECRET_NAME = re.compile(r"token|key|secret|passw|pwd|auth|credential|bearer|cookie|session", re.IGNORECASE)
_SECRET_PREFIX = re.compile(
    r"\b(sk|pk|rk)[-_]\w|\bgh[pousr]_|github_pat_|glpat-|xox[a-z]-|\bAKIA|\beyJ|ptm_|"
    r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-"
)
_SHORTEST = 6  # characters of a value that is hidden wherever it appears
_HARMLESS = re.compile(r"[0-9.,:]+|[a-z]{1,12}|[A-Z]{1,12}|[a-z]{2}_[A-Z]{2}\.?[\w-]*")
_EMPTY: tuple[object, ...] = ((), {}, ServerTimeouts())
_LONG_RUN = re.compile(r"[A-Za-z0-9]{16,}")
_ASSIGNMENT = re.compile(r"([^=:\s]+)(=|:\s*)(.+)", re.DOTALL)


def mask_config(config: GatewayConfig, external_texts: Collection[str] = ()) -> dict[str, Any]:
    """Plain data for YAML or JSON. `external_texts` came from the environment or from files."""
    return _mask_part(config, external_texts)


def _mask_part(part: Part, external_texts: Collection[str]) -> dict[str, Any]:
    shown = {}
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if value is None and field.default is None:
            continue  # not set
        if isinstance(part, Server) and value in _EMPTY:
            continue  # a server has many keys, most of them for other kinds of server
        if isinstance(part, Server) and name == "args":
            shown[name] = mask_args(part.args, external_texts)
        elif name == "sha256":  # not a secret, though it looks like one
            shown[name] = value
        else:
            shown[name] = _mask_value(value, external_texts)
    return shown


def _mask_value(value: object, external_texts: Collection[str]) -> Any:
    if isinstance(value, Part):
        return _mask_part(value, external_texts)
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, Mapping):
        return {key: _mask_value(item, external_texts) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_mask_value(item, external_texts) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, str) and "://" in value:
        return mask_url(value, external_texts)
    return value


def mask_args(args: Sequence[str], external_texts: Collection[str] = ()) -> list[str]:
    shown: list[str] = []
    previous = ""
    for arg in args:
        follows_secret_flag = previous.startswith("-") and "=" not in previous and _SECRET_NAME.search(previous)
        if follows_secret_flag and not arg.startswith("-"):
            shown.append(MASK)
        else:
            shown.append(_mask_arg(arg, external_texts))
        previous = arg
    return shown


def mask_url(url: str, external_texts: Iterable[str] = ()) -> str:
    """Keep the host and the plain path; mask the user, query values and path segments that look like secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    host = parts.netloc.rpartition("@")
    netloc = f"{MASK}@{host[2]}" if host[1] else parts.netloc
    hidden = url in external_texts  # some part of it came from outside, and which one is unknown
    path = "/".join(MASK if looks_secret(step) or (hidden and step) else step for step in parts.path.split("/"))
    query = "&".join(_mask_pair(pair) for pair in parts.query.split("&")) if parts.query else ""
    return urlunsplit((parts.scheme, netloc, path, query, MASK if parts.fragment else ""))


def _mask_arg(arg: str, external_texts: Collection[str]) -> str:
    if "://" in arg:
        return mask_url(arg, external_texts)
    secret = arg in external_texts or looks_secret(arg)
    assignment = _ASSIGNMENT.fullmatch(arg)
    if assignment and (secret or _SECRET_NAME.search(assignment[1])):
        return f"{assignment[1]}{assignment[2]}{MASK}"
    return MASK if secret else arg


def _mask_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={MASK}" if equals else MASK


def hidden_values(
    server: Server, environ: Mapping[str, str], state_database: SecretStr | None = None
) -> tuple[str, ...]:
    """The values that a server gets from its entry and that its output must not show, longest first."""
    env = {name: value.get_secret_value() for name, value in server.env.items()}
    env |= {name: environ[name] for name in server.inherit_env if name in environ}
    values = {value for name, value in env.items() if not _is_harmless(name, value)}
    for address in (server.db, state_database):
        if not isinstance(address, SecretStr):
            continue
        password = urlsplit(address.get_secret_value()).password or ""
        values |= {password, unquote(password)}
    for arg, shown in zip(server.args, mask_args(server.args), strict=True):
        if arg != shown and "://" not in arg:
            values.add(arg[len(shown) - len(MASK) :])  # without the `name=` before it
    return tuple(sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True))


def _is_harmless(name: str, value: str) -> bool:
    """Whether it is a path, a plain URL, a number or a word of a usual setting, whose loss would spoil a message."""
    if names_secret(name) or looks_secret(value):
        return False
    if value.startswith(("/", "~", "./")) or _HARMLESS.fullmatch(value):
        return True
    return "://" in value and mask_url(value) == value


def names_secret(name: str) -> bool:
    """Whether a variable, a header or an option with this name usually has a secret."""
    return _SECRET_NAME.search(name) is not None


def looks_secret(text: str) -> bool:
    if _SECRET_PREFIX.search(text):
        return True
    runs = _LONG_RUN.findall(text)
    return any(not run.isalpha() and not run.isdigit() for run in runs)
