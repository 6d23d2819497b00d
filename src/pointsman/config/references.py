"""Fills in `${NAME}`, `${NAME:-default}` and `${file:/run/secrets/x}`; `$${` stands for a plain `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.config.regular_file import NotRegularFileError, open_regular

MAX_FILE_BYTES = 1_048_576

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


@dataclass(slots=True)
class Filled:
    """A text with its references filled in, and what went wrong on the way."""

    text: str
    failures: list[str] = field(default_factory=list)
    changed: bool = False  # something came from outside: what it is may be a secret


def fill(text: str, environ: Mapping[str, str], folder: Path) -> Filled:
    filled = Filled(text)
    if "${" in text:
        filled.text = _REFERENCE.sub(lambda match: _value(match, environ, folder, filled), text)
    return filled


def _value(match: re.Match[str], environ: Mapping[str, str], folder: Path, filled: Filled) -> str:
    if match[0] == "$${":
        return "${"
    filled.changed = True
    inner, closed = match[1], match[2]
    if not closed:
        filled.failures.append("`${` is not closed; a plain `${` is written `$${`")
        return ""
    if "${" in inner:
        filled.failures.append("a reference inside another one is not supported")
        return ""
    if inner.startswith("file:"):
        return _from_file(folder / inner.removeprefix("file:"), filled)
    return _from_environment(inner, environ, filled)


def _from_environment(inner: str, environ: Mapping[str, str], filled: Filled) -> str:
    named = _NAME.fullmatch(inner)
    if named is None:
        filled.failures.append(
            "`${...}` takes a variable's NAME, NAME:-default or file:/path; a plain `${` is written `$${`"
        )
        return ""
    name, default = named[1], named[2]
    value = environ.get(name)
    if default is not None:
        return value or default  # as in a shell: an empty variable takes the default too
    if value is None:
        filled.failures.append(
            f"the environment variable {name} is not set; set it, or give a default with ${{{name}:-...}}"
        )
        return ""
    return value


def _from_file(path: Path, filled: Filled) -> str:
    try:
        with open_regular(path) as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            filled.failures.append(f"{path} has more than {MAX_FILE_BYTES} bytes")
            return ""
        return raw.decode().rstrip("\r\n")  # editors and `echo` end a file with a line break that nobody means
    except NotRegularFileError:
        filled.failures.append(f"{path} is not a regular file")
    except OSError as error:
        filled.failures.append(f"{path} cannot be read: {error.strerror}")
    except ValueError:  # not UTF-8, or a null character in the path
        filled.failures.append(f"{path} does not hold text in UTF-8")
    return ""
