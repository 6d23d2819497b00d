"""The expiry of a token: as a person writes it, and as it is shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

from pointsman.config.sections.values import parse_moment

_DURATION = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def read_expiry(given: str, now: datetime) -> str:
    """A date, a time or a duration from now (`12h`, `30d`, `8w`), as the file stores it. Raises ValueError."""
    duration = _DURATION.fullmatch(given.strip())
    if duration:
        until = now + timedelta(**{_UNITS[duration[2]]: int(duration[1])})
        return until.strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        until = parse_moment(given)
    except ValueError as error:
        raise ValueError(f"{error}, or a duration from now such as 12h, 30d or 8w.") from None
    if until <= now:
        raise ValueError(f"{given} is in the past.")
    return given.strip()


def show_expiry(expires: datetime | None) -> str | None:
    """None: never."""
    if expires is None:
        return None
    if expires.time() == time.max:  # the file has a date without a time
        return expires.date().isoformat()
    return expires.isoformat().replace("+00:00", "Z")


def has_expired(expires: datetime | None, now: datetime | None = None) -> bool:
    return expires is not None and expires <= (now or datetime.now(UTC))
