"""Who is signed in to the page: one-time codes in memory, and cookies that are sealed with the gateway's keys.

A code is made by the owner's channel or at the start, works once and for 10 minutes. It becomes a cookie of 12 hours,
which survives a restart, because the keys do. `end_all` ends all cookies: they carry the mark of the state folder, and
it writes a new mark.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pointsman.core.model import WallClock
from pointsman.core.sdk import SealError, Sealing
from pointsman.core.wire import InvalidJsonError, decode, encode
from pointsman.router.audit.row_rate import TokenBucket

FILE = "page.mark"
SIGN_IN = "page/sign-in"  # the method of its audit rows
CODE_S = 600.0
SESSION_S = 12 * 3600.0
MAX_CODES = 16  # that are open at once; the oldest ends
FAILURES_BURST = 10
FAILURES_PER_S = 0.1
MAX_COOKIE_CHARS = 4096
_AUDIENCE = "page"
_SKEW_S = 60.0


@dataclass(frozen=True, slots=True)
class Session:
    """One browser that is signed in."""

    csrf: str  # every form carries it
    until: float  # wall clock


class SignIns:
    """Codes, cookies and the mark. Used from the event loop only."""

    def __init__(self, keys: Sequence[str], state_dir: Path, clock: WallClock = time.time) -> None:
        self._sealing = Sealing(keys)
        self._path = state_dir / FILE
        self._clock = clock
        self._codes: dict[bytes, float] = {}  # the hash of a code -> when it ends
        self._failures = TokenBucket(FAILURES_BURST, clock())
        self._mark = ""

    def new_code(self) -> str:
        now = self._clock()
        self._codes = {digest: until for digest, until in self._codes.items() if until > now}
        while len(self._codes) >= MAX_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(24)
        self._codes[_digest(code)] = now + CODE_S
        return code

    def redeem(self, code: str) -> str | None:
        """Return the cookie for a code, which ends with this; None: it is unknown, was used, or has expired."""
        until = self._codes.pop(_digest(code), 0.0)
        return self._cookie() if until > self._clock() else None

    def too_many_failures(self) -> bool:
        """Count a code that was refused; True: there were too many in the last minutes."""
        if self._failures.fill(FAILURES_BURST, FAILURES_PER_S, self._clock()) < 1:
            return True
        self._failures.left -= 1
        return False

    def session(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie; None: it is not of this gateway, has expired, or was ended."""
        content = self.unsealed(cookie, _AUDIENCE)
        try:
            if content is None or content.get("mark") != self._read_mark():
                return None
        except OSError:  # without its mark, no cookie can be trusted
            return None
        return Session(content["csrf"], content["exp"])

    def end_all(self) -> None:
        """End all cookies and codes. Raises OSError: the mark could not be written, and nothing has changed."""
        self._write_mark()
        self._codes.clear()

    def sealed(self, audience: str, content: dict[str, Any], life_s: float) -> str:
        """Seal what a browser keeps for the page."""
        now = self._clock()
        return self._sealing.seal(encode({**content, "aud": f"pointsman {audience}", "iat": now, "exp": now + life_s}))

    def unsealed(self, text: str | None, audience: str) -> dict[str, Any] | None:
        """None: it was not sealed by this gateway for this, or it has expired."""
        if not text or len(text) > MAX_COOKIE_CHARS:
            return None
        try:
            content = decode(self._sealing.unseal(text))
        except (SealError, InvalidJsonError, ValueError):
            return None
        now = self._clock()
        if not isinstance(content, dict) or content.get("aud") != f"pointsman {audience}":
            return None
        return content if content["iat"] <= now + _SKEW_S and now < content["exp"] else None

    def _cookie(self) -> str:
        content = {"mark": self._read_mark(), "csrf": secrets.token_urlsafe(24)}
        return self.sealed(_AUDIENCE, content, SESSION_S)

    def _read_mark(self) -> str:
        if not self._mark:
            try:
                self._mark = self._path.read_text().strip()
            except FileNotFoundError:
                self._write_mark()
        return self._mark

    def _write_mark(self) -> None:
        mark = secrets.token_hex(16)
        fresh = self._path.with_name(f".{self._path.name}")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(mark)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        self._mark = mark


def _digest(code: str) -> bytes:
    """Codes are looked up by their hash, so that the time of a lookup says nothing about them."""
    return sha256(code.encode(errors="replace")).digest()
