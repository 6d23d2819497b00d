"""The lines of a server's stderr that tell a person why it failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pointsman.config.secrets import mask_secrets

MAX_LINES = 4
_RECENT = 12  # different lines
_TELLING = re.compile(r"error|exception|cause|fail|not found|no such|denied|refused|invalid|missing", re.IGNORECASE)
ASIDE = re.compile(r"\s*(?:\S+\s+)?(?:warning|warn|hint|note|info|debug)\b", re.IGNORECASE)  # of what does not matter
_VARYING = re.compile(r"[0-9][0-9T:_.Z-]*")  # times and numbers, which differ from one attempt to the next


def telling_lines(written: Sequence[str], count: int = MAX_LINES) -> list[str]:
    """Return the lines that name an error, or else the last lines: each once, secrets masked."""
    different: dict[str, str] = {}
    for line in reversed(written):  # of a line that each attempt repeats, the last one counts
        different.setdefault(_VARYING.sub("0", line), line)
    recent = list(reversed(list(different.values())[:_RECENT]))
    named = [line for line in recent if _TELLING.search(line)]
    telling = [line for line in named if not ASIDE.match(line)] or named
    return [mask_secrets(line) for line in (telling[:count] if telling else recent[-count:])]
