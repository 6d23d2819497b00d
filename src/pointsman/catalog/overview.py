"""Describes in a few words what a caller's servers do, from the names of their tools. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

MAX_CHARS = 480  # 120 tokens
MAX_NAME_CHARS = 40  # of a server, and of what one tool does

_LEAD = "Servers here: "
_MORE = ", …"
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\dA-Za-z_]+")


@dataclass(frozen=True, slots=True)
class ServerTools:
    """A server and the names of the tools that a caller may use; empty while it starts."""

    name: str
    tools: Sequence[str]


def describe_servers(servers: Sequence[ServerTools]) -> str:
    """`Servers here: World clock (current time, convert time); Tracker (create issue, …).`

    Uses only names, split into words: a server's prose could say anything to the model that reads this. Every server
    is named while there is room; then each gets one more of its tools in turn.
    """
    if not servers:
        return ""
    entries, left_out = _entries_that_fit(servers)
    room = MAX_CHARS - len(_render(entries, left_out)) - len(_MORE) * len(entries)  # each may end with it
    for column in zip_longest(*(_phrases(entry.server) for entry in entries)):
        for entry, phrase in zip(entries, column, strict=True):
            if phrase is not None and not entry.full:
                room = entry.add(phrase, room)
    return _render(entries, left_out)


class _Entry:
    """One server of the text, with its phrases so far."""

    def __init__(self, server: ServerTools) -> None:
        self.server = server
        self.phrases: list[str] = []
        self.full = False

    def add(self, phrase: str, room: int) -> int:
        """Add one phrase if there is room; return the rest of the room."""
        before = len(str(self))
        self.phrases.append(phrase)
        cost = len(str(self)) - before
        if cost > room:
            self.phrases.pop()
            self.full = True
            return room
        return room - cost

    def __str__(self) -> str:
        name = _clip(self.server.name)
        if not self.phrases:
            return name
        return f"{name} ({', '.join(self.phrases)}{_MORE if self.full else ''})"


def _entries_that_fit(servers: Sequence[ServerTools]) -> tuple[list[_Entry], int]:
    """The servers that can be named, and the number of the others."""
    entries = [_Entry(server) for server in servers]
    left_out = 0
    while len(entries) > 1 and len(_render(entries, left_out)) > MAX_CHARS:
        entries.pop()
        left_out += 1
    return entries, left_out


def _render(entries: Sequence[_Entry], left_out: int) -> str:
    more = f"; and {left_out} more" if left_out else ""
    return f"{_LEAD}{'; '.join(map(str, entries))}{more}."


def _phrases(server: ServerTools) -> list[str]:
    own = "".join(_WORD.findall(server.name)).lower()
    return list(dict.fromkeys(filter(None, (_phrase(name, own) for name in server.tools))))


def _phrase(tool_name: str, own: str) -> str:
    """`github_create_issue` of GitHub: `create issue`."""
    words = [word.lower() for word in _WORD.findall(tool_name)]
    # Joined, because `github` and `GitHub` are split differently.
    for length in range(1, len(words)):
        if "".join(words[:length]) == own:
            return _clip(" ".join(words[length:]))
    return _clip(" ".join(words))


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_NAME_CHARS else line[: MAX_NAME_CHARS - 1].rstrip() + "…"
