"""`doctor --client NAME`: checks the file of one client, from its syntax to the token in it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pointsman.catalog.tokens import TokenIndex
from pointsman.core.errors import UnauthorizedError
from pointsman.router.clients.client_file import ClientFileError
from pointsman.router.clients.dialects import DIALECTS, Dialect, user_file
from pointsman.router.clients.entry import DEFAULT_NAME
from pointsman.router.clients.setup import look, secret_in
from pointsman.router.doctor.findings import Finding, Inspected, Level

_CORRECT = "Correct it, or restore a backup"
_URL_KEYS = ("url", "serverUrl", "httpUrl", "uri")


def check_client(inspected: Inspected) -> list[Finding]:
    if inspected.client is None:
        return []
    dialect = DIALECTS[inspected.client]
    path = user_file(dialect, inspected.environ)
    step = f"`pointsman client add {dialect.name}` writes it"
    try:
        entry = look(dialect, path, DEFAULT_NAME).entry
    except ClientFileError as error:
        return [_finding(dialect, "problem", f"its file cannot be read: {_reason(error)}. {_CORRECT}.")]
    if not path.exists():
        return [_finding(dialect, "problem", f"there is no file {path}. {step}.")]
    if entry is None:
        return [_finding(dialect, "problem", f"{path} has no entry `{DEFAULT_NAME}`. {step}.")]
    problems = [*_address_problems(inspected, entry), *_token_problems(inspected, entry)]
    if problems:
        return [_finding(dialect, "problem", f"{path}: {problem} {step} anew.") for problem in problems]
    return [_finding(dialect, "ok", f"{path} is in order. {dialect.after}".rstrip())]


def other_port(entry: Mapping[str, Any], gateway_url: str) -> str:
    """What is wrong with an entry that leads to another port of this machine than the gateway's; empty: nothing."""
    url = _url(entry)
    wanted, given = urlsplit(gateway_url), urlsplit(url or "")
    try:
        differs = given.hostname in ("127.0.0.1", "localhost", "::1") and given.port != wanted.port
    except ValueError:
        return "its URL has no valid port."
    return f"its URL has port {given.port}, but the gateway listens on {wanted.port}." if differs else ""


def _url(entry: Mapping[str, Any]) -> str | None:
    return next((entry[key] for key in _URL_KEYS if isinstance(entry.get(key), str)), None)


def _reason(error: ClientFileError) -> str:
    return str(error).removesuffix(" Mend it first.").rstrip(".")


def _finding(dialect: Dialect, level: Level, text: str) -> Finding:
    return Finding("client", level, f"{dialect.title}: {text}")


def _address_problems(inspected: Inspected, entry: Mapping[str, Any]) -> Iterator[str]:
    if _url(entry) is None:
        yield from _command_problems(entry)
        return
    url = inspected.running.url if inspected.running is not None else inspected.configured_url
    if url is not None and (problem := other_port(entry, url)):
        yield problem


def _command_problems(entry: Mapping[str, Any]) -> Iterator[str]:
    command = entry.get("command") or entry.get("cmd")
    program = command[0] if isinstance(command, list) and command else command
    if not isinstance(program, str):
        yield "its entry has neither a URL nor a command."
    elif shutil.which(program) is None:
        yield f"its command `{program}` does not exist."
    elif not Path(program).is_absolute():
        yield f"its command `{program}` is no full path, and desktop programs have another PATH than your shell."


def _token_problems(inspected: Inspected, entry: Mapping[str, Any]) -> Iterator[str]:
    secret = secret_in(entry)
    if secret is None:
        text = json.dumps(entry, default=str)
        if "$" not in text and "env" not in text.lower():  # a reference to a variable cannot be checked from here
            yield "its entry has no token."
        return
    if inspected.config is None:
        return
    try:
        TokenIndex(inspected.config.tokens).verify(secret, time.time())
    except UnauthorizedError as error:
        yield f"its token is not accepted ({str(error).partition('.')[0].lower()})."
