"""Expands the references in a text: `${NAME}`, `${NAME:-default}`, `${file:/run/secrets/x}`, `${cmd:PROGRAM ARGUMENT}`
and `${keyring:NAME}`; `$${` stands for a literal `${`. Those of clients are read, too: `${env:NAME}`, `${input:name}`
and `${userHome}`.

A command and a keyring are asked only by a reader that is passed in. Without one a stand-in takes the place of the
value, so that what only looks at a file runs nothing.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct, field

from pointsman.config.files import NotRegularFileError, open_regular
from pointsman.core.extras import install_command, keyring_is_installed

MAX_FILE_BYTES = 1_048_576  # of a file that a reference names
KEYRING_SERVICE = "pointsman"  # of an entry that names no other
UNRESOLVED_URL = "https://unresolved.invalid/"
_UNRESOLVED_DATABASE = "postgresql://unresolved.invalid/"

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_SECRET = re.compile(r"(cmd|keyring):(?!-)(.*)", re.DOTALL)  # `${cmd:-x}` is the variable `cmd` with a default
_OF_EDITORS = ("userHome", "workspaceFolder")


class SecretReference(NamedTuple):
    """`${cmd:...}`: `words` is an argv. `${keyring:...}`: `words` is the service and the name."""

    kind: Literal["cmd", "keyring"]
    words: tuple[str, ...]


class SecretReadError(Exception):
    """A command or a keyring gave no value. `str(error)` is the reason with the next step, and repeats no output."""


class ReadsSecrets(Protocol):
    """Asks commands and keyrings."""

    def read(self, reference: SecretReference, folder: Path) -> str:
        """The value; `folder` is that of the configuration file.

        Raises:
            SecretReadError
        """
        ...


class Expanded(Struct):
    """A text with its references expanded, and the reasons why some could not be."""

    text: str
    failures: list[str] = field(default_factory=list)
    external: bool = False  # a part came from outside the file: it may be a secret
    variables: set[str] = field(default_factory=set)
    not_set: dict[str, str] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    secrets: set[SecretReference] = field(default_factory=set)  # of commands and keyrings
    unread: bool = False  # a stand-in takes the place of one of them


class Expander(Struct, frozen=True):
    """What references are resolved with. `key` is the last key of the path to the text."""

    environ: Mapping[str, str]
    folder: Path
    secrets: ReadsSecrets | None = None

    def expand(self, text: str, key: str = "") -> Expanded:
        expanded = Expanded(text)
        if "${" in text:
            expanded.text = _REFERENCE.sub(lambda match: self._value(match, expanded), text)
            if expanded.unread and _REFERENCE.fullmatch(text):
                expanded.text = _as_whole_value(expanded.text, key)
        return expanded

    def _value(self, match: re.Match[str], expanded: Expanded) -> str:
        if match[0] == "$${":
            return "${"
        expanded.external = True
        inner, closed = match[1], match[2]
        if not closed:
            expanded.failures.append("`${` is not closed; write a literal `${` as `$${`")
            return ""
        if "${" in inner:
            expanded.failures.append("nested references are not supported")
            return ""
        if inner.startswith("file:"):
            return _from_file(self.folder / inner.removeprefix("file:"), expanded)
        if inner.startswith("input:"):
            return _from_input(inner.removeprefix("input:"), self.environ, expanded)
        if secret := _SECRET.fullmatch(inner):
            return self._from_secret(secret[1], secret[2], expanded)
        if inner.startswith(_OF_EDITORS) and inner not in self.environ:
            return _from_editor(inner, self.environ, expanded)
        return _from_environment(inner.removeprefix("env:"), self.environ, expanded)

    def _from_secret(self, kind: str, text: str, expanded: Expanded) -> str:
        try:
            reference = _command(text) if kind == "cmd" else _keyring_entry(text)
            expanded.secrets.add(reference)
            if self.secrets is not None:
                return self.secrets.read(reference, self.folder)
        except SecretReadError as error:
            expanded.failures.append(str(error))
            return ""
        expanded.unread = True
        return _stand_in(reference)


def secret_references(text: str) -> Iterator[str]:
    """The `${cmd:...}` and `${keyring:...}` in a text, as they are written."""
    for match in _REFERENCE.finditer(text):
        if match[1] is not None and _SECRET.match(match[1]):
            yield match[0]


def input_variable(name: str) -> str:
    """The environment variable that stands for an input of VS Code: `github-token` is GITHUB_TOKEN."""
    variable = re.sub(r"[^A-Z0-9_]", "_", name.upper())
    return f"_{variable}" if variable[:1].isdigit() else variable


_FILE_STEPS: Mapping[type[OSError], str] = {
    FileNotFoundError: "create it, or correct the path in ${file:...}",
    PermissionError: "let the user that runs the gateway read it",
}
_SHELL_OPERATORS = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "<"})


def _command(text: str) -> SecretReference:
    try:
        words = shlex.split(text)
    except ValueError:
        raise SecretReadError("`${cmd:...}` has a quote that is not closed, or ends in a backslash") from None
    if not words or not words[0]:
        raise SecretReadError("`${cmd:...}` names no program; write one with its arguments: ${cmd:pass show tracker}")
    if "\0" in text:
        raise SecretReadError("`${cmd:...}` contains a null character")
    operator = _shell_operator(text)
    if operator is not None:
        raise SecretReadError(
            f"`${{cmd:...}}` has `{operator}`, and there is no shell that would read it; write a script, or "
            f"`sh -c '...'`; as an argument, quote it: '{operator}'"
        )
    return SecretReference("cmd", tuple(words))


def _shell_operator(text: str) -> str | None:
    """A word without quotes that only a shell understands."""
    try:
        words = shlex.split(text, posix=False)  # which leaves the quotes
    except ValueError:
        return None
    return next((word for word in words if word in _SHELL_OPERATORS), None)


def _keyring_entry(text: str) -> SecretReference:
    service, slash, name = text.rpartition("/")
    if not name.strip() or (slash and not service.strip()) or "\0" in text:
        raise SecretReadError("`${keyring:...}` takes NAME or SERVICE/NAME, such as ${keyring:tracker}")
    if not keyring_is_installed():
        raise SecretReadError(
            f"the package for keyrings is not installed; install it with `{install_command('keyring')}`, "
            "or use ${file:PATH}"
        )
    return SecretReference("keyring", (service or KEYRING_SERVICE, name))


def _stand_in(reference: SecretReference) -> str:
    """A word that is the same for the same reference, and valid in a header, an address, a path and as a key."""
    written = "\0".join((reference.kind, *reference.words)).encode(errors="surrogatepass")
    return f"unresolved-{hashlib.sha256(written).hexdigest()[:32]}"


def _as_whole_value(stand_in: str, key: str) -> str:
    if key.lower().endswith(("url", "uri", "endpoint")):
        return UNRESOLVED_URL + stand_in
    return _UNRESOLVED_DATABASE + stand_in if key == "database" else stand_in


def _from_editor(inner: str, environ: Mapping[str, str], expanded: Expanded) -> str:
    if inner == "userHome":
        return environ.get("HOME", "")
    expanded.failures.append(
        "`${workspaceFolder}` is the folder that is open in the editor, which a gateway does not know; write the path"
    )
    return ""


def _from_input(name: str, environ: Mapping[str, str], expanded: Expanded) -> str:
    variable = input_variable(name)
    expanded.variables.add(variable)
    if variable not in environ:
        _miss(
            expanded, variable, f"a gateway cannot ask for `${{input:{name}}}`; set the environment variable {variable}"
        )
    return environ.get(variable, "")


def _from_environment(inner: str, environ: Mapping[str, str], expanded: Expanded) -> str:
    named = _NAME.fullmatch(inner)
    if named is None:
        expanded.failures.append(
            "`${...}` takes NAME, NAME:-default, file:/path, cmd:PROGRAM or keyring:NAME; write a literal `${` as `$${`"
        )
        return ""
    name, default = named[1], named[2]
    value = environ.get(name)
    expanded.variables.add(name)
    if default is not None:
        if not value and not default:
            expanded.empty.append(name)
        return value or default  # as in a shell, an empty variable takes the default, too
    if value is None:
        reason = f"the environment variable {name} is not set; set it, or give a default with ${{{name}:-...}}"
        _miss(expanded, name, reason)
        return ""
    return value


def _miss(expanded: Expanded, variable: str, reason: str) -> None:
    expanded.failures.append(reason)
    expanded.not_set[reason] = variable


def _from_file(path: Path, expanded: Expanded) -> str:
    try:
        with open_regular(path) as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            expanded.failures.append(f"{path} is larger than {MAX_FILE_BYTES} bytes")
            return ""
        return raw.decode().rstrip("\r\n")  # editors and `echo` add a line break that is not part of the secret
    except NotRegularFileError:
        expanded.failures.append(f"{path} is not a regular file")
    except OSError as error:
        step = _FILE_STEPS.get(type(error), "check the path in ${file:...}")
        expanded.failures.append(f"{path} cannot be read: {error.strerror}; {step}")
    except ValueError:  # not UTF-8, or a null character in the path
        expanded.failures.append(f"{path} is not UTF-8 text")
    return ""
