"""Checks of the configuration file: valid, where the gateway expects it, with tokens, and its secrets private."""

from __future__ import annotations

import re
import shlex
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path

from pointsman.config.errors import ConfigError
from pointsman.config.loader import advice, read_text
from pointsman.config.secrets import holds_secret
from pointsman.router.auth.metadata import can_sign_in
from pointsman.router.clients.secret_files import FOLDER
from pointsman.router.doctor.findings import Finding, Inspected
from pointsman.router.owner.description import unseen_servers, unseen_text

_CHECK = "configuration"
_READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH
_SEARCHABLE_BY_OTHERS = stat.S_IXGRP | stat.S_IXOTH
_FILE_REFERENCE = re.compile(r"(?<!\$)\$\{file:([^}]+)\}")
_MOUNTED = Path("/run")  # by an orchestrator, which sets the modes
SHOWN_LINES = 5
SHOWN_FILES = 5
SHOWN_TOKENS = 5
MAX_FILES = 1000


def check_configuration(inspected: Inspected) -> list[Finding]:
    if inspected.config is None:
        return [Finding(_CHECK, "problem", problem) for problem in inspected.problems]
    remarks = [Finding(_CHECK, "problem", remark) for remark in advice(inspected.config)]
    notes = [Finding(_CHECK, "note", text) for text in inspected.config.notes]
    return [*(remarks or [Finding(_CHECK, "ok", f"{inspected.config_path} is in order.")]), *notes]


def check_place(inspected: Inspected) -> list[Finding]:
    """Check that the file of the running gateway is still there, and is the one that this shell finds."""
    if inspected.running is None:
        return []
    used, other = inspected.used_config, inspected.config_path
    if used is None:
        return [Finding(_CHECK, "note", f"The running gateway does not say which file it uses; {other} was checked.")]
    if not used.exists():
        return [] if other == used else [Finding(_CHECK, "problem", gone(used))]  # or reported as the configuration
    if other is not None and other.exists() and not other.samefile(used):
        return [Finding(_CHECK, "note", f"The running gateway uses another file: {used}.")]
    return []


def check_restart(inspected: Inspected) -> list[Finding]:
    """Note what was edited and waits for a restart of the running gateway."""
    status = inspected.status or {}
    keys = status.get("waitsForRestart", ())
    if not keys:
        return []
    named = ", ".join(f"`{key}`" for key in keys)
    has, takes = ("has", "takes") if len(keys) == 1 else ("have", "take")
    what = f"{named} {has} changed since the gateway was started, and {takes} effect at its next start"
    process = status.get("parent", status["process"])
    step = f"Restart the gateway: its service, or end process {process} and run `pointsman serve` again"
    return [Finding(_CHECK, "note", f"{what}. {step}.")]


def gone(used: Path) -> str:
    return (
        f"{used} is gone. The running gateway was started with it, and keeps what it has read; "
        "at its next start it finds nothing. Move the file back, or restore it from a backup."
    )


def check_tokens(inspected: Inspected) -> list[Finding]:
    if inspected.config is None:
        return []
    tokens, now = inspected.config.tokens, datetime.fromtimestamp(time.time(), UTC)
    step = "`pointsman token create NAME` creates one"
    signs_in = can_sign_in(inspected.config)
    if not tokens and signs_in:
        return [Finding("tokens", "ok", f"There is no token: clients sign in. {step} for a client that cannot.")]
    if not tokens:
        return [Finding("tokens", "problem", f"There is no token, so every client is refused. {step}.")]
    expired = [name for name, token in tokens.items() if token.expires is not None and token.expires <= now]
    if len(expired) == len(tokens) and not signs_in:
        return [Finding("tokens", "problem", f"Every token has expired, so every client is refused. {step}.")]
    names = ", ".join(f"`{name}`" for name in expired)
    found = []
    if expired:
        found.append(Finding("tokens", "note", f"Expired: {names}. `pointsman token revoke NAME` removes one."))
    limited = ((name, unseen_servers(inspected.config, name)) for name in tokens if name not in expired)
    unseen = (Finding("tokens", "note", unseen_text(name, servers)) for name, servers in limited if servers)
    return [*found, *islice(unseen, SHOWN_TOKENS)]


def check_secrets(inspected: Inspected) -> list[Finding]:
    """Check that no secret is in a file that others can read."""
    path = inspected.config_path
    if path is None:
        return []
    try:
        mode, text = path.stat().st_mode, read_text(path)
    except (OSError, ConfigError):
        return []  # reported by the check of the configuration
    written_out = _written_out(path, text) if mode & _READABLE_BY_OTHERS else []
    return [*written_out, *_readable_files(path.absolute().parent, text)]


def _written_out(path: Path, text: str) -> list[Finding]:
    """Secrets in the configuration itself. Names lines, comments too, never values."""
    numbers = [str(number) for number, line in enumerate(text.splitlines(), 1) if holds_secret(line)]
    if not numbers:
        return []
    where = ", ".join(numbers[:SHOWN_LINES]) + (", ..." if len(numbers) > SHOWN_LINES else "")
    return [
        Finding(
            "secrets",
            "problem",
            f"{path} can be read by other users and has secrets in plain text (line {where}). "
            f"Run `chmod 600 {path}`, and replace them by `${{NAME}}` or `${{file:PATH}}`.",
        )
    ]


def _readable_files(folder: Path, text: str) -> list[Finding]:
    """Files that the configuration refers to, or that are in the folder for secrets, and that others can read."""
    readable = [file for file in _secret_files(folder, text) if _is_readable_by_others(file)]
    if not readable:
        return []
    shown = readable[:SHOWN_FILES]
    more = f" and {len(readable) - len(shown)} more" if len(readable) > len(shown) else ""
    one = len(readable) == 1
    what = f"{'A file' if one else f'{len(readable)} files'} with secrets can be read by other users"
    names = " ".join(shlex.quote(str(file)) for file in shown)
    return [Finding("secrets", "problem", f"{what}. Run `chmod 600 {names}`{more}.")]


def _secret_files(folder: Path, text: str) -> list[Path]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    named = (folder / match[1] for line in lines for match in _FILE_REFERENCE.finditer(line))
    files = dict.fromkeys(islice(chain(named, _files_in(folder / FOLDER)), MAX_FILES))
    return [file for file in files if not file.is_relative_to(_MOUNTED)]


def _files_in(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(folder.iterdir())
    except OSError:
        return  # there is none


def _is_readable_by_others(file: Path) -> bool:
    try:
        mode, folder_mode = file.stat().st_mode, file.parent.stat().st_mode
    except (OSError, ValueError):
        return False  # the check of the configuration reports a reference that leads nowhere
    return stat.S_ISREG(mode) and bool(mode & _READABLE_BY_OTHERS) and bool(folder_mode & _SEARCHABLE_BY_OTHERS)
