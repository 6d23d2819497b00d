"""What single values of the configuration must look like. Each check says in one sentence what is wrong."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr, ValidationInfo

REQUEST_KEY_BYTES = 32


def moment(value: object) -> datetime:
    """A point in time with a zone: a bare date is the end of that day, and no zone means UTC."""
    if isinstance(value, str):
        value = _read_moment(value.strip())
    try:
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        if isinstance(value, date):
            return datetime.combine(value, time.max, UTC)
    except OverflowError:
        pass  # a zone's offset led out of the calendar
    raise ValueError("must be a date like 2027-01-31 or a time like 2027-01-31T18:00:00Z")


def anchored(path: Path, info: ValidationInfo) -> Path:
    """A relative path starts at the folder of the file it stands in, wherever the daemon was started."""
    folder = info.context.get("folder") if isinstance(info.context, dict) else None
    if path.parts[:1] == ("~",):
        try:
            return path.expanduser()
        except RuntimeError:
            raise ValueError("`~` cannot be used here: this user has no home folder") from None
    return folder / path if isinstance(folder, Path) else path


def database_address(address: str, info: ValidationInfo) -> str:
    """A URL stays as it is; anything else is a path to a file."""
    return address if "://" in address else str(anchored(Path(address), info))


def web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that never closes
        usable = False
    if not usable or any(character.isspace() for character in url):
        raise ValueError("must be an address like https://host.example/mcp")
    return url


def request_key(key: SecretStr) -> SecretStr:
    size = len(key.get_secret_value().encode())
    if size < REQUEST_KEY_BYTES:
        raise ValueError(f"has {size} bytes and needs at least {REQUEST_KEY_BYTES}; `openssl rand -hex 32` makes one")
    return key


def _read_moment(text: str) -> datetime | date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        pass  # not a bare date
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
