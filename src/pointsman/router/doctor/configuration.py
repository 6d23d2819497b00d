"""Checks of the configuration file: valid, where the gateway expects it, with tokens, and its secrets private."""

from __future__ import annotations

import stat
import time
from datetime import UTC, datetime
from pathlib import Path

from pointsman.config.errors import ConfigError
from pointsman.config.loader import advice, read_text
from pointsman.config.secrets import holds_secret
from pointsman.router.doctor.findings import Finding, Inspected

_CHECK = "configuration"
_READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH
SHOWN_LINES = 5


def check_configuration(inspected: Inspected) -> list[Finding]:
    if inspected.config is None:
        return [Finding(_CHECK, "problem", problem) for problem in inspected.problems]
    remarks = [Finding(_CHECK, "problem", remark) for remark in advice(inspected.config)]
    notes = [Finding(_CHECK, "note", text) for text in inspected.config.notes]
    return [*(remarks or [Finding(_CHECK, "ok", f"{inspected.config_path} is in order.")]), *notes]


def check_place(inspected: Inspected) -> list[Finding]:
    """Check that the file of the running gateway is still there, and is the one that this shell finds."""
    if inspected.status is None:
        return []
    used = Path(inspected.status["configuration"])
    if not used.exists():
        step = "Move it back; until then the gateway keeps what it has read, and at its next start it finds nothing"
        return [Finding(_CHECK, "problem", f"{used}, which the running gateway uses, is gone. {step}.")]
    other = inspected.config_path
    if other is not None and other.exists() and not other.samefile(used):
        return [Finding(_CHECK, "note", f"The running gateway uses another file: {used}.")]
    return []


def check_tokens(inspected: Inspected) -> list[Finding]:
    if inspected.config is None:
        return []
    tokens, now = inspected.config.tokens, datetime.fromtimestamp(time.time(), UTC)
    step = "`pointsman token create NAME` creates one"
    if not tokens:
        return [Finding("tokens", "problem", f"There is no token, so every client is refused. {step}.")]
    expired = [name for name, token in tokens.items() if token.expires is not None and token.expires <= now]
    if len(expired) == len(tokens):
        return [Finding("tokens", "problem", f"Every token has expired, so every client is refused. {step}.")]
    names = ", ".join(f"`{name}`" for name in expired)
    if expired:
        return [Finding("tokens", "note", f"Expired: {names}. `pointsman token revoke NAME` removes one.")]
    return []


def check_secrets(inspected: Inspected) -> list[Finding]:
    """Check that no secret is written out in a file that others can read. Names lines, comments too, never values."""
    path = inspected.config_path
    if path is None:
        return []
    try:
        mode, text = path.stat().st_mode, read_text(path)
    except (OSError, ConfigError):
        return []  # reported by the check of the configuration
    if not mode & _READABLE_BY_OTHERS:
        return []
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
