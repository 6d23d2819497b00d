"""Moves the secrets of a server out of its entry, each into a file of its own with a reference in its place."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pointsman.config.mask import looks_secret, names_secret
from pointsman.config.secrets import SECRET

FOLDER = "secrets"  # beside the configuration
_SCHEME = re.compile(r"(?:Bearer|Basic|Token|token|bearer) +")
_VARIABLES = re.compile(r"\$\$\{[^}]*\}")  # literal for us; a program expands them itself
_ASSIGNMENT = re.compile(r"([^=:\s]+)(=|: ?)(.+)", re.DOTALL)


def move_secrets(
    server_id: str, server: Mapping[str, Any], taken: Collection[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The server with references, and the secrets by the name of their file. `taken` are names that exist."""
    mover = _Mover(server_id, taken)
    moved = dict(server)
    for key in ("env", "headers"):
        if key in server:
            moved[key] = {name: mover.value(name, text) for name, text in server[key].items()}
    if "args" in server:
        moved["args"] = mover.args(server["args"])
    if "url" in server:
        moved["url"] = mover.url(server["url"])
    return moved, mover.files


def _is_secret(name: str, text: str) -> bool:
    return names_secret(name) or looks_secret(text) or SECRET.search(text) is not None


class _Mover:
    def __init__(self, server_id: str, taken: Collection[str]) -> None:
        self._server_id = server_id
        self._taken = taken
        self.files: dict[str, str] = {}

    def value(self, name: str, text: str) -> str:
        """A variable or a header."""
        return self._behind_scheme(name, text) if _is_secret(name, text) else text

    def _behind_scheme(self, name: str, text: str) -> str:
        """The scheme of an authorization stays in the entry."""
        scheme = _SCHEME.match(text)
        start = scheme.end() if scheme else 0
        return text[:start] + self._moved(name, text[start:])

    def args(self, args: list[str]) -> list[str]:
        moved: list[str] = []
        for arg in args:
            previous = moved[-1] if moved else ""
            follows = previous.startswith("-") and "=" not in previous and names_secret(previous)
            moved.append(
                self._moved(previous.lstrip("-"), arg) if follows and not arg.startswith("-") else self._arg(arg)
            )
        return moved

    def url(self, url: str) -> str:
        """A user with the password, and the parts of a path and the values of a query that look like secrets."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return url
        user, at, host = parts.netloc.rpartition("@")
        netloc = f"{self._moved('url', user)}@{host}" if at else host
        path = "/".join(self._moved("url", step) if looks_secret(step) else step for step in parts.path.split("/"))
        query = "&".join(self._pair(pair) for pair in parts.query.split("&")) if parts.query else ""
        return urlunsplit((parts.scheme, netloc, path, query, parts.fragment))

    def _arg(self, arg: str) -> str:
        if arg.startswith(("http://", "https://")):
            return self.url(arg)
        pair = _ASSIGNMENT.fullmatch(arg)
        if pair and not pair[3].startswith("//") and (names_secret(pair[1]) or SECRET.search(pair[3])):
            return pair[1] + pair[2] + self._behind_scheme(pair[1], pair[3])
        return self._moved("arg", arg) if SECRET.search(arg) else arg

    def _pair(self, pair: str) -> str:
        name, equals, value = pair.partition("=")
        secret = equals and value and (names_secret(name) or looks_secret(value))
        return f"{name}={self._moved(name, value)}" if secret else pair

    def _moved(self, name: str, text: str) -> str:
        """The reference that replaces the text; the text itself if it is none or could not be read back."""
        if not _VARIABLES.sub("", text).strip() or re.search(r"(?<!\$)\$\{", text):
            return text
        if text != text.rstrip("\r\n") or "\0" in text:
            return text
        stem = f"{self._server_id}.{re.sub(r'[^A-Za-z0-9_-]+', '-', name).strip('-')}"
        number = 1
        file = stem
        while file in self._taken or file in self.files:
            number += 1
            file = f"{stem}-{number}"
        self.files[file] = text.replace("$${", "${")  # references are not expanded in it
        return f"${{file:{FOLDER}/{file}}}"
