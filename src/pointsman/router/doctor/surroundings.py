"""Checks of what the gateway needs: programs and their versions, certificates, the clock, the state folder."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pointsman.config.sections.server import Server
from pointsman.router.audit.kept import READ_ERRORS
from pointsman.router.doctor.findings import Finding, Inspected, unread_text
from pointsman.router.doctor.gateway import INSTALL, NO_PROGRAM, is_loopback
from pointsman.router.downstream.stdio.environment import missing_program_hint

VERSION_S = 10.0
OLDEST_NODE = (18,)
OLDEST_PYTHON = (3, 10)
LOW_DISK_BYTES = 200 << 20
CLOCK_S = 120.0  # that the clock may be behind the newest row
_NODE = frozenset({"node", "npx", "npm"})
_PYTHON = re.compile(r"python[0-9.]*")
_VERSION = re.compile(r"(\d+)\.(\d+)")
_CA_FILES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")


async def check_programs(inspected: Inspected) -> list[Finding]:
    """Check that each command exists, unless the running gateway shows that it does or lacks it, and is not too old."""
    findings: dict[Finding, None] = {}
    for server_id, server in _commands(inspected).items():
        command, path = str(server.command), _search_path(server, inspected.environ)
        found = shutil.which(command, path=path)
        if found is None and not _is_known(inspected, server_id):
            step = missing_program_hint(command, inspected.environ) or INSTALL.get(
                command, f"Install it, or write its full path into `servers.{server_id}.command`"
            )
            findings[Finding("programs", "problem", f"Server `{server_id}`: no program `{command}`. {step}.")] = None
        elif found is not None and (old := await _too_old(found, path)):
            findings[Finding("programs", "problem", f"Server `{server_id}`: {old}")] = None
    return list(findings)


def check_certificates(inspected: Inspected) -> list[Finding]:
    """Check the files with certificate authorities that variables name, and that tokens do not travel in the clear."""
    findings = []
    for name in _CA_FILES:
        if value := inspected.environ.get(name):
            reason = _unusable(Path(value))
            if reason:
                step = f"Correct {name}, or unset it: programs that read it refuse all HTTPS servers"
                findings.append(Finding("tls", "problem", f"{name} is {value}, which {reason}. {step}."))
    folder = inspected.environ.get("SSL_CERT_DIR")
    if folder and not any(Path(each).is_dir() for each in folder.split(os.pathsep)):
        findings.append(
            Finding("tls", "problem", f"SSL_CERT_DIR is {folder}, which is no folder. Correct or unset it.")
        )
    config = inspected.config
    if config is not None and not is_loopback(config.listen.host):
        findings.append(
            Finding(
                "tls",
                "note",
                f"The gateway listens on {config.listen.host} without TLS: put a reverse proxy with TLS in front, "
                "because clients send their tokens.",
            )
        )
    return findings


def check_clock(inspected: Inspected) -> list[Finding]:
    """Check that the clock is not behind the newest row of the audit."""
    try:
        rows = inspected.read_audit(newest=1)
    except READ_ERRORS:
        return []
    if not rows:
        return []
    ahead_s = datetime.fromisoformat(rows[0].time).timestamp() - time.time()
    if ahead_s <= CLOCK_S:
        return []
    step = "Correct the clock: tokens that expire and the audit depend on it"
    message = f"The clock is wrong: the newest audit row, of {rows[0].time}, is {ahead_s:.0f} s in the future. {step}."
    return [Finding("clock", "problem", message)]


def check_database(inspected: Inspected) -> list[Finding]:
    """Check that the database of the configuration can be read. A gateway goes on without it."""
    if inspected.config is None or inspected.config.state.database is None:
        return []
    if unread := inspected.config.unread_secrets("state.database"):
        return [Finding("database", "note", unread_text(unread, "the database was not asked"))]
    try:
        rows = inspected.read_audit(newest=1)
    except READ_ERRORS as error:
        reason = str(error).rstrip(".")
        text = f"The database of `state.database` cannot be used: {reason}. {_until_it_is_back(inspected)}."
        return [Finding("database", "problem", text)]
    return [Finding("database", "ok", f"PostgreSQL answers{'' if rows else '; it has no audit rows yet'}.")]


def _until_it_is_back(inspected: Inspected) -> str:
    listed = inspected.status["servers"]["list"] if inspected.status is not None else ()
    unread = [f"`{one['id']}`" for one in listed if one["enabled"] and one.get("unread")]
    audit = "the audit stays in the journal until it is back"
    if not unread:
        return f"Calls go on, and {audit}"
    what = "server {} offers" if len(unread) == 1 else "servers {} offer"
    without = f"{what.format(', '.join(unread))} no tools, because it is not known what was approved"
    return f"Until it is back, {without}. Calls of other servers go on, and {audit}"


def check_state_folder(inspected: Inspected) -> list[Finding]:
    folder = inspected.state_dir
    try:
        found = folder.stat()
    except FileNotFoundError:
        return []  # the first start creates it
    except OSError as error:
        return [Finding("state", "problem", f"The state folder {folder} cannot be read: {error.strerror}.")]
    if not stat.S_ISDIR(found.st_mode):
        step = "Move it away, or choose another folder with --state-dir"
        return [Finding("state", "problem", f"{folder} should be the state folder, and is no folder. {step}.")]
    findings = []
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        step = f"Run `chmod 700 {folder}`"
        findings.append(Finding("state", "problem", f"The state folder {folder} is open to other users. {step}."))
    if not os.access(folder, os.W_OK | os.X_OK):
        step = "Give it to the user who runs the gateway (`chown`, `chmod 700`), or choose another one with --state-dir"
        findings.append(Finding("state", "problem", f"The state folder {folder} is not writable. {step}."))
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        if free < LOW_DISK_BYTES:
            full = f"Only {free >> 20} MiB are free in {folder}: calls are refused once the audit cannot be written."
            findings.append(Finding("state", "problem", f"{full} Free some space."))
    return findings


def _commands(inspected: Inspected) -> dict[str, Server]:
    servers: Mapping[str, Server] = inspected.config.servers if inspected.config is not None else {}
    return {server_id: one for server_id, one in servers.items() if one.enabled and one.command is not None}


def _is_known(inspected: Inspected, server_id: str) -> bool:
    """Whether the gateway has started the program, or has reported itself that it is missing."""
    listed = inspected.status["servers"]["list"] if inspected.status is not None else ()
    one = next((one for one in listed if one["id"] == server_id), None)
    return one is not None and (one["state"] in ("running", "not answering") or NO_PROGRAM in str(one["reason"]))


def _search_path(server: Server, environ: Mapping[str, str]) -> str:
    own = server.env.get("PATH")
    return own.get_secret_value() if own is not None else environ.get("PATH", os.defpath)


async def _too_old(program: str, path: str) -> str:
    """Return a sentence if the program needs Node or Python and that is too old; otherwise nothing."""
    name = Path(program).name
    if name in _NODE:
        node = shutil.which("node", path=path)
        version = await _version(node) if node is not None else None
        if version is not None and version < OLDEST_NODE:
            step = "MCP servers need 18 or newer. Update Node.js (https://nodejs.org/)"
            return f"Node.js {version[0]}.{version[1]} is too old. {step}."
    elif _PYTHON.fullmatch(name):
        version = await _version(program)
        if version is not None and version < OLDEST_PYTHON:
            step = "MCP servers need 3.10 or newer. Name a newer Python, or use `uvx`"
            return f"`{program}` is Python {version[0]}.{version[1]}, which is too old. {step}."
    return ""


async def _version(program: str) -> tuple[int, ...] | None:
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(VERSION_S):
            printed, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    found = _VERSION.search(printed[:200].decode(errors="replace"))
    return (int(found[1]), int(found[2])) if found else None


def _unusable(file: Path) -> str:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=file)
    except FileNotFoundError:
        return "does not exist"
    except ssl.SSLError:
        return "holds no certificates"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return ""
