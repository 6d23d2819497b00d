"""What single values of the configuration must look like. Each check says in one sentence what is wrong."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from ipaddress import ip_address, ip_network
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


def network(text: str) -> str:
    """An IP address or a CIDR network in canonical form."""
    try:
        found = ip_network(text, strict=False)
    except ValueError:
        raise ValueError("must be an IP address or a CIDR network, such as `10.0.0.5` or `10.0.0.0/24`") from None
    if "/" in text and str(found.network_address) != str(ip_address(text.partition("/")[0])):
        raise ValueError(f"is an address inside a network: write the network `{found}` or the address alone")
    if found.prefixlen == 0:
        raise ValueError("must not cover every address: name the proxy's own address or network")
    return str(found.network_address) if found.num_addresses == 1 else str(found)


def anchored(path: Path, info: ValidationInfo) -> Path:
    """A relative path starts at the folder of the file it stands in, wherever the daemon was started."""
    folder = info.context.get("folder") if isinstance(info.context, dict) else None
    if path.parts[:1] == ("~",):
        try:
            return path.expanduser()
        except RuntimeError:
            raise ValueError("`~` cannot be used here: this user has no home folder") from None
    return folder / path if isinstance(folder, Path) else path


def named_path(path: object) -> object:
    """An empty one would be the folder of the file, which nobody means who wrote nothing."""
    if path == "":
        raise ValueError("must not be empty")
    return path


def root_name(name: str) -> str:
    """It is the first part of paths, so it must look like the name of one folder."""
    if not re.fullmatch(r"\w(?:[\w. -]{0,62}[\w-])?", name):
        raise ValueError("the name of a root takes letters, digits, `_`, `-` and `.`, such as `app`")
    return name


def database_address(address: str) -> str:
    """The key is there for a later version; until then nobody shall believe that the rows are elsewhere."""
    raise ValueError("is not supported in this version: the database is a file in the state folder. Leave it out")


def no_boolean(value: object) -> object:
    if isinstance(value, bool):  # pydantic would take `true` for one second
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic wants ValueError
    return value


def program(command: str) -> str:
    if not command.strip() or "\0" in command:
        raise ValueError("must name a program, such as `uvx`")
    return command


def environment_name(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("the name of a variable takes no `=` and is not empty")
    return name


def without_nul(value: SecretStr) -> SecretStr:
    if "\0" in value.get_secret_value():
        raise ValueError("must not hold a NUL character")
    return value


def header_name(name: str) -> str:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ValueError("the name of a header takes letters, digits and `-`")
    return name


def header_value(value: SecretStr) -> SecretStr:
    if any(character in "\r\n\0" for character in value.get_secret_value()):
        raise ValueError("must be one line")
    return value


def web_address(url: str) -> str:
    if not _is_address(url):
        raise ValueError("must be an address like https://host.example/mcp")
    return url


def service_address(url: str) -> str:
    """Paths are added to it, and the credential has a key of its own."""
    if not _is_address(url) or "@" in url or "?" in url or "#" in url:
        raise ValueError("must be an address like https://host.example, without user, `?` and `#`")
    return url


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that never closes
        return False
    return usable and not any(character.isspace() for character in url)


def bearer_token(token: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]+", token.get_secret_value()):
        raise ValueError("must be one word of letters, digits and signs, and is not empty")
    return token


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
