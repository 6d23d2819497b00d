"""Describes in a few words what a caller's servers do, from the names of their tools. Pure.

`describe_servers` writes a sentence for the description of `tool_discovery`, `write_instructions` the instructions of
the handshake. Both use only names, split into words: a server's prose could say anything to the model that reads it.
In the instructions a server's words are in alphabetical order, so that names cannot be chosen to form a sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Protocol

from msgspec import Struct

from pointsman.catalog.effects import Effect
from pointsman.providers.visible import is_visible_name

MAX_CHARS = 480  # 120 tokens
MAX_NAME_CHARS = 40  # of a server, and of what one tool does

INSTRUCTIONS = (
    "Many tools stand behind this server. Find the ones that fit a task with tool_discovery, one query for each step, "
    "and run them with tool_execute."
)
INSTRUCTIONS_WITHOUT_DISCOVERY = (
    "Run a tool whose key you know with tool_execute. Tool discovery is switched off here; the operator knows the keys."
)
INSTRUCTIONS_WITHOUT_SERVERS = "No server stands behind this gateway for you; tool_discovery says why."
MAX_INSTRUCTIONS = 600  # 150 tokens, as long as the servers' names fit
MAX_INSTRUCTIONS_NAMES = 2_000  # for more servers, without words; clients cut instructions at 2 KB
SHORT_NAME_CHARS = 20  # of a server in the instructions, where the whole names do not fit; twenty of them do
MAX_WORDS = 12  # of one name, and of one server in the instructions
MAX_WORD_CHARS = 20  # a longer word is no word of a language
MAX_OTHER_WORD_CHARS = 8  # of a word that is not ASCII; without spaces between words, a longer one may be a sentence
MAX_KEPT_NAMES = 1_000  # of the tools of one server
MAX_KEPT_CHARS = 128  # of a tool's name, as the specification has it
MAX_CACHED_WORDS = 10_000  # servers, each once for callers with the same rights

_LEAD = "Servers here: "
_INSTRUCTIONS_LEAD = f"{INSTRUCTIONS} Servers: "
_MORE = ", …"
_NAME_MARKS = frozenset(" -_.&")  # in a server's name; others could end its entry in the text
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\dA-Za-z_]+")

# Words that say nothing about a tool.
_EMPTY = """
get list set all new by for of to from in on at with without and or the an my this that is are be do does it its
as into out up via per tool tools mcp api id ids use using
"""
_EMPTY_WORDS = frozenset(_EMPTY.split())

# Verbs in the names of most servers' tools; other words come first.
_COMMON = """
create update delete add remove read write edit search find fetch query send run execute make open close start stop
check show view describe retrieve save load put post patch modify change manage
"""
_COMMON_VERBS = frozenset(_COMMON.split())


class ServerTools(Struct, frozen=True):
    """A server, by its `plain_name`, and the names of the tools that a caller may use; empty while it starts."""

    name: str
    tools: Sequence[str]


class NameMemory(Protocol):
    """Keeps the names of tools across restarts, for servers that have not listed them yet."""

    def tool_names(self, server_id: str) -> Sequence[str]:
        """The `kept_names` of the server's last list; empty: it never gave one."""
        ...

    def app_tool_names(self, server_id: str) -> Collection[str]:
        """Those of them that are for apps only."""
        ...

    def claims(self, server_id: str) -> Mapping[str, Effect]:
        """The effects that they claim; a name that is missing here is destructive."""
        ...

    def note_tool_names(
        self, server_id: str, names: Iterable[str], for_apps: Collection[str], claims: Mapping[str, Effect]
    ) -> None: ...


class NoNameMemory:
    """Fits `NameMemory`, and keeps nothing."""

    def tool_names(self, server_id: str) -> Sequence[str]:
        return ()

    def app_tool_names(self, server_id: str) -> Collection[str]:
        return ()

    def claims(self, server_id: str) -> Mapping[str, Effect]:
        return {}

    def note_tool_names(
        self, server_id: str, names: Iterable[str], for_apps: Collection[str], claims: Mapping[str, Effect]
    ) -> None:
        return


def kept_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names that are remembered and described: visible, bounded, and in an order that no restart changes."""
    visible = (name for name in names if len(name) <= MAX_KEPT_CHARS and is_visible_name(name))
    return tuple(sorted(visible)[:MAX_KEPT_NAMES])


def plain_name(name: str) -> str:
    """The name of a server without punctuation; empty if it has no letter or digit."""
    kept = "".join(char if _is_plain(char) else " " for char in name)
    return " ".join(kept.split()) if any(map(str.isalnum, kept)) else ""


def _is_plain(char: str) -> bool:
    """Letters of many scripts need their combining marks."""
    return char.isalnum() or char in _NAME_MARKS or unicodedata.category(char).startswith("M")


def describe_servers(servers: Sequence[ServerTools]) -> str:
    """`Servers here: World clock (current time, convert time); Tracker (create issue, …).`

    Every server is named while there is room; then each gets one more of its tools in turn.
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


class ServerWords(Struct, frozen=True):
    """A server, by its `plain_name`, and what its tools are about, most telling word first."""

    name: str
    words: Sequence[str]


def telling_words(server_name: str, tools: Iterable[str]) -> tuple[str, ...]:
    """The words of the tools' names that say most about the server.

    The most frequent ones come first; of others those that end a name, as the object of the verb does. Verbs that every
    server has come last. The words of the server's own name are left out, and so are those that say nothing. `issue`
    and `issues` are one word.
    """
    own = {_stem(word) for word in (*_split(server_name), "".join(_split(server_name)))}
    counts: dict[str, int] = {}
    shown: dict[str, str] = {}
    ends: set[str] = set()
    for tool in tools:
        words = _split(tool)
        ends.update(map(_stem, words[-1:]))
        for word in dict.fromkeys(words):
            stem = _stem(word)
            most = MAX_WORD_CHARS if word.isascii() else MAX_OTHER_WORD_CHARS
            if stem in own or word in _EMPTY_WORDS or word.isdigit() or not 2 <= len(word) <= most:
                continue
            counts[stem] = counts.get(stem, 0) + 1
            shown[stem] = min(shown.get(stem, word), word, key=len)
    # Stable: ties keep the order of the names.
    ranked = sorted(counts, key=lambda stem: (stem in _COMMON_VERBS, -counts[stem], stem not in ends))
    return tuple(shown[stem] for stem in ranked[:MAX_WORDS])


def write_instructions(servers: Sequence[ServerWords]) -> str:
    """The fixed sentences, and `Servers: World clock (time, timezone); Tracker (comment, issue).`

    Every server is named; then each gets one more of its words in turn, while there is room. Many servers are only
    named, and too many are counted.
    """
    if not servers:
        return INSTRUCTIONS
    names = [_clip(server.name) for server in servers]
    if len(_join_instructions(names, 0)) > MAX_INSTRUCTIONS:
        names = [_clip_middle(server.name, SHORT_NAME_CHARS) for server in servers]
    room = MAX_INSTRUCTIONS - len(_join_instructions(names, 0))
    if room < 0:
        return _join_instructions(*_named_and_counted(names))
    shares = _share_words([server.words for server in servers], room)
    texts = [f"{name} ({', '.join(sorted(mine))})" if mine else name for name, mine in zip(names, shares, strict=True)]
    return _join_instructions(texts, 0)


def _share_words(words: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    """Give each server one more word in turn, those with the fewest first, while there is room.

    In each round all have equal shares of the room. A server takes its most telling word that fits its share, and what
    it leaves goes to the next one: if there is too little room for all, those without a word are spread evenly.
    """
    shares: list[list[str]] = [[] for _ in words]
    waiting = [index for index, mine in enumerate(words) if mine]
    while waiting:
        fewest = min(len(shares[index]) for index in waiting)
        turn = [index for index in waiting if len(shares[index]) == fewest]
        around = 2 if fewest else 3  # characters: `, ` before the word, or ` (` and `)` around it
        spent = 0
        for place, index in enumerate(turn, 1):
            most = room * place // len(turn) - spent - around
            word = next((word for word in words[index] if len(word) <= most and word not in shares[index]), None)
            if word is not None:
                shares[index].append(word)
                spent += len(word) + around
        if not spent:
            break
        room -= spent
        waiting = [index for index in waiting if len(shares[index]) < len(words[index])]
    return shares


def _named_and_counted(names: Sequence[str]) -> tuple[list[str], int]:
    """As many names as fit, and the number of the others."""
    room = MAX_INSTRUCTIONS_NAMES - len(_join_instructions([], len(names)))
    named: list[str] = []
    for name in names:
        room -= len(name) + 2
        if room < 0:
            break
        named.append(name)
    return named, len(names) - len(named)


def _join_instructions(entries: Sequence[str], left_out: int) -> str:
    more = f"; and {left_out} more" if left_out else ""
    return f"{_INSTRUCTIONS_LEAD}{'; '.join(entries)}{more}."


def _split(name: str) -> list[str]:
    return [match[0].lower() for match in islice(_WORD.finditer(name), MAX_WORDS)]


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


class WordCache:
    """Computes the words of each server once for each list: there may be thousands of tools, and many handshakes."""

    def __init__(self) -> None:
        self._words: dict[Hashable, tuple[object, ServerWords]] = {}

    def get(self, grant: Hashable, names: object, compute: Callable[[], ServerWords]) -> ServerWords:
        """`grant` says which of the names a caller may use; the names are compared by identity."""
        known = self._words.get(grant)
        if known is None or known[0] is not names:
            self._words.pop(grant, None)
            if len(self._words) >= MAX_CACHED_WORDS:
                del self._words[next(iter(self._words))]
            known = self._words[grant] = (names, compute())
        return known[1]

    def clear(self) -> None:
        self._words.clear()


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


def _clip_middle(text: str, room: int) -> str:
    """Names of many servers often begin alike, so their end is kept."""
    line = " ".join(text.split())
    tail = room // 2 - 1
    return line if len(line) <= room else f"{line[: room - tail - 1].rstrip()}…{line[-tail:].lstrip()}"


def _clip(text: str, room: int = MAX_NAME_CHARS) -> str:
    line = " ".join(text.split())
    return line if len(line) <= room else line[: room - 1].rstrip() + "…"
