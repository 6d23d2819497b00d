"""Who is signed in to the page: one-time codes in memory, and cookies that are sealed with the gateway's keys.

A code is made by the owner's channel or at the start, works once and for 10 minutes. It becomes a cookie of 12 hours,
which survives a restart, because the keys do. `end_all` ends all cookies and codes: they belong to the mark of the
state folder, and it writes a new mark, which replicas on the folder read, too.

Gateways on one database share the mark there. They, and replicas on one folder, have a store of the codes that were
used: a code is then sealed, so that any of them can be asked.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import struct
import time
from collections.abc import Sequence
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct

from pointsman.core.model import WallClock
from pointsman.core.sealing import SealError, Sealing
from pointsman.core.wire import InvalidJsonError, decode, encode
from pointsman.router.audit.row_rate import TokenBucket
from pointsman.router.serving.state_folder import REPLICAS, exclusive
from pointsman.router.state.key_values import ABSENT, KeyValues, StateAwayError

FILE = "page.mark"
SIGN_IN = "page/sign-in"  # the method of its audit rows
CODE_S = 600.0
SESSION_S = 12 * 3600.0
MAX_CODES = 16  # that are open at once; the oldest ends
FAILURES_BURST = 10
FAILURES_PER_S = 0.1
MAX_COOKIE_CHARS = 4096
PAGE = "page"
CONSENT = "consent"  # a session that can answer requests for access at the public address, and nothing else
CONSENT_S = 3600.0
_LIVES = {PAGE: SESSION_S, CONSENT: CONSENT_S}
_NAME = b"page cookie"
_SKEW_S = 60.0
_MARK_KEY = "page/mark"
_USED = "page/used-code/"
_CODE_FORM = struct.Struct(">4sd8s8s")  # "code", its end, a part of the mark, random
_SEAL = "v1."  # begins what is sealed; a code goes without it


class Session(Struct, frozen=True):
    """One browser that is signed in."""

    csrf: str  # every form carries it
    until: float  # wall clock


class SignIns:
    """Codes, cookies and the mark. Used from the event loop only."""

    def __init__(self, keys: Sequence[str], state_dir: Path, clock: WallClock = time.time) -> None:
        self._sealing = Sealing(keys)
        self.names = tuple(hmac.digest(key.encode(), _NAME, "sha256")[:6].hex() for key in keys)
        """What the names of cookies end with, for each key: equal at all replicas, whatever their ports, and different
        at another gateway on the same host, which a browser sends its cookies as well."""
        self._path = state_dir / FILE
        self._replicas = state_dir / REPLICAS
        self._clock = clock
        self._codes: dict[bytes, tuple[float, str]] = {}  # the hash of a code -> when it ends, and the mark it had
        self._failures = TokenBucket(FAILURES_BURST, clock())
        self.shared: KeyValues | None = None  # the mark that gateways share
        self.used_codes: KeyValues | None = None  # then any gateway or replica can be asked for a code

    def new_code(self) -> str:
        now = self._clock()
        self._codes = {digest: kept for digest, kept in self._codes.items() if kept[0] > now}
        while len(self._codes) >= MAX_CODES:
            del self._codes[next(iter(self._codes))]
        try:
            mark = self._read_mark()
        except OSError:  # a gateway starts without it; `redeem` refuses the code, as no cookie could be trusted
            mark = ""
        code = secrets.token_urlsafe(24) if self.used_codes is None else self._sealed_code(now + CODE_S, mark)
        self._codes[_digest(code)] = now + CODE_S, mark
        return code

    def redeem(self, code: str, audience: str = PAGE) -> str | None:
        """Return the cookie for a code, which ends with this; None: it is unknown, was used, or has expired."""
        until, mark = self._codes.pop(_digest(code), (0.0, ""))
        return self._cookie(audience) if until > self._clock() and mark == self._read_mark() else None

    async def redeem_once(self, code: str, audience: str = PAGE) -> str | None:
        """`redeem`, also for a code of another gateway with the same store, and once among all of them.

        While the store is away, only codes of this gateway work.
        """
        if self.used_codes is None:
            return self.redeem(code, audience)
        if not self._is_code(code):
            return None
        key = _USED + _digest(code).hex()
        try:
            unused = await asyncio.to_thread(self.used_codes.put, key, b"", version=ABSENT, life_s=CODE_S + _SKEW_S)
        except StateAwayError:
            return self.redeem(code, audience)
        self._codes.pop(_digest(code), None)
        return self._cookie(audience) if unused is not None else None

    async def end_all_everywhere(self) -> None:
        """`end_all` for all gateways with the same store. Raises OSError, StateAwayError: nothing has changed."""
        if self.shared is not None:
            mark = secrets.token_hex(16)
            await asyncio.to_thread(self.shared.put, _MARK_KEY, mark.encode())
            self._write_mark(mark)
        else:
            self._write_mark()
        self._codes.clear()

    async def share_mark(self) -> None:
        """Adopt the mark that all gateways use, or let them use ours. Raises OSError, StateAwayError."""
        if self.shared is None:
            return
        values, own = self.shared, self._read_mark()

        def agreed() -> str:
            kept = values.get(_MARK_KEY)
            if kept is None and values.put(_MARK_KEY, own.encode(), version=ABSENT) is None:
                kept = values.get(_MARK_KEY)
            return own if kept is None else kept.value.decode()

        mark = await asyncio.to_thread(agreed)
        if mark != own:
            self._write_mark(mark)

    def _sealed_code(self, until: float, mark: str) -> str:
        content = _CODE_FORM.pack(b"code", until, mark[:8].encode(), secrets.token_bytes(8))
        return self._sealing.seal(content).removeprefix(_SEAL)

    def _is_code(self, code: str) -> bool:
        """Whether a gateway with our keys has made it, and it has not expired or been ended."""
        try:
            content = self._sealing.unseal(_SEAL + code)
            kind, until, mark, _ = _CODE_FORM.unpack(content)
            current = self._read_mark()[:8].encode()
        except (SealError, ValueError, struct.error, OSError):
            return False
        return bool(kind == b"code" and mark == current and until > self._clock())

    def too_many_failures(self) -> bool:
        """Count a code that was refused; True: there were too many in the last minutes."""
        if self._failures.fill(FAILURES_BURST, FAILURES_PER_S, self._clock()) < 1:
            return True
        self._failures.left -= 1
        return False

    def session(self, cookie: str | None, audience: str = PAGE) -> Session | None:
        """Return the session of a cookie; None: it is not of this gateway, has expired, or was ended."""
        content = self.unsealed(cookie, audience)
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

    def _cookie(self, audience: str) -> str:
        content = {"mark": self._read_mark(), "csrf": secrets.token_urlsafe(24)}
        return self.sealed(audience, content, _LIVES[audience])

    def _read_mark(self) -> str:
        """Read the file each time: another replica may have ended all cookies."""
        return self._kept_mark() or self._write_mark(first=True)

    def _kept_mark(self) -> str:
        try:
            return self._path.read_text().strip()
        except FileNotFoundError:
            return ""

    def _write_mark(self, mark: str = "", *, first: bool = False) -> str:
        """Of replicas that start together, the first one's mark holds."""
        with exclusive(self._replicas / "mark.lock") if self._replicas.is_dir() else nullcontext():
            if first and (kept := self._kept_mark()):
                return kept
            mark = mark or secrets.token_hex(16)
            fresh = self._path.with_name(f".{self._path.name}")
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
                file.write(mark)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        return mark


def _digest(code: str) -> bytes:
    """Codes are looked up by their hash, so that the time of a lookup says nothing about them."""
    return sha256(code.encode(errors="replace")).digest()
