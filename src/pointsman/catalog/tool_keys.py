"""Reads tool keys that a model wrote in another form, and finds the nearest keys to one that means nothing. Pure.

Both see only the tools that the caller may use, so neither reveals nor reaches any other.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

from pointsman.core.errors import UnknownToolError
from pointsman.core.model import ToolKey

MAX_KEY_CHARS = 512  # of a text that is read as a key; longer ones mean nothing
MAX_COMPARED_CHARS = 64  # of a key, when it is compared with others
MAX_SHOWN_CHARS = 200  # keys longer than that are not suggested
NEAREST = 3
MAX_NAMED = 5  # meanings, or servers, in one error
_LEAST_SIMILARITY = 0.3

_SEPARATORS = (":", "__", ".", "/", "_")  # between server and tool, as clients and models write them
_CLIENT_PREFIX = "mcp__"
_OWN_PREFIX = re.compile(r"(?:mcp__?)?pointsman(?:__|[:._/])")  # under which a client lists our own tools
_WORD = re.compile(r"[^\W_]+")
_SIGNATURE_BITS = 512

KeyForm = Literal["qualified_name", "bare_name"]
"""`server__tool` and the like, which names a server; the name of a tool alone."""


@dataclass(frozen=True, slots=True)
class ServerNames:
    """The tools that a server last listed, and which of them the caller may use."""

    names: Mapping[str, object] | None  # None: it has never given a list
    permits: Callable[[str], bool]

    def has(self, tool_name: str) -> bool:
        return self.names is not None and tool_name in self.names and self.permits(tool_name)

    def may_have(self, tool_name: str) -> bool:
        return self.names is None and self.permits(tool_name)


def read_key(text: str, servers: Mapping[str, ServerNames]) -> tuple[ToolKey, KeyForm] | None:
    """The one tool that `text` can mean, among all tools that the caller may use; None: it means nothing.

    Raises:
        UnknownToolError: it can mean several tools, or it names no server and one of them has never given its list.
    """
    if len(text) > MAX_KEY_CHARS:
        return None
    found = _meanings(text, servers)
    if not found:
        return None
    if len(found) > 1:
        keys = ", ".join(f"`{key}`" for key in list(found)[:MAX_NAMED])
        raise UnknownToolError(text, f"It can mean {keys}: call again with the full key.")
    [(key, form)] = found.items()
    unlisted = [server_id for server_id, server in servers.items() if server.may_have(key.tool_name)]
    if form == "bare_name" and unlisted:
        named = ", ".join(f"`{server_id}`" for server_id in unlisted[:MAX_NAMED])
        raise UnknownToolError(
            text,
            f"It can mean `{key}` or a tool of {named}, whose tools are not known yet: call again with a full key.",
        )
    return key, form


def _meanings(text: str, servers: Mapping[str, ServerNames]) -> dict[ToolKey, KeyForm]:
    found: dict[ToolKey, KeyForm] = {}
    rests = _without_prefixes(text)
    for server_id, server in servers.items():
        for tool_name in _names_after(server_id, text, rests):
            if server.has(tool_name):
                found[ToolKey(server_id, tool_name)] = "qualified_name"
        for rest in rests:
            if server.has(rest):
                found.setdefault(ToolKey(server_id, rest), "bare_name")
    return found


def _without_prefixes(text: str) -> list[str]:
    """The text, and what is left of it without the prefix that a client puts before names.

    The name of an unknown server is never dropped: `mcp__other__delete` must not become a call of some `delete`.
    """
    rests = [text]
    if text.startswith(_CLIENT_PREFIX):
        rests.append(text[len(_CLIENT_PREFIX) :])
    own = _OWN_PREFIX.match(text)
    if own is not None:
        rests.append(text[own.end() :])
    return rests


def _names_after(server_id: str, text: str, rests: list[str]) -> Iterator[str]:
    """The names that the text has for a tool of this server."""
    for rest in rests:
        if rest.startswith(server_id):
            after = rest[len(server_id) :]
            yield from (after[len(separator) :] for separator in _SEPARATORS if after.startswith(separator))
    if text.startswith(_CLIENT_PREFIX):  # the name that a client has for the gateway may be any: the key is complete
        before, _, tool_name = text.partition(":")
        if before.endswith(f"__{server_id}"):
            yield tool_name


class KeyIndex:
    """Finds the keys that are written most like a text, by the trigrams that their words have in common.

    The trigrams of a key are the bits of one number, computed once for each list that a server gives. So a search costs
    a few operations per key, where a comparison letter by letter would cost thousands.
    """

    def __init__(self) -> None:
        self._servers: dict[str, _ServerKeys] = {}

    def nearest(self, text: str, servers: Mapping[str, ServerNames]) -> list[str]:
        """The nearest keys, best first; none that is not similar."""
        wanted = _signature(text, {})
        similar: list[tuple[float, str]] = []
        for server_id, server in servers.items():
            if server.names is not None:
                similar.extend(self._keys(server_id, server.names).similar(wanted, server.permits))
        return [key for _, key in heapq.nsmallest(NEAREST, similar)]

    def keep_only(self, server_ids: Collection[str]) -> None:
        """Evict the names of all other servers."""
        self._servers = {server_id: keys for server_id, keys in self._servers.items() if server_id in server_ids}

    def _keys(self, server_id: str, names: Mapping[str, object]) -> _ServerKeys:
        keys = self._servers.get(server_id)
        if keys is None or keys.names is not names:
            keys = self._servers[server_id] = _ServerKeys(server_id, names)
        return keys


class _ServerKeys:
    def __init__(self, server_id: str, names: Mapping[str, object]) -> None:
        self.names = names
        self._server_id = server_id
        words: dict[str, int] = {}
        keys = ((name, f"{server_id}:{name}") for name in names)
        signatures = ((name, _signature(key, words)) for name, key in keys if len(key) <= MAX_SHOWN_CHARS)
        self._signatures = [(name, signature, signature.bit_count()) for name, signature in signatures]

    def similar(self, wanted: int, permits: Callable[[str], bool]) -> Iterator[tuple[float, str]]:
        """The permitted keys that are similar enough, each after its similarity (Dice's coefficient), negated."""
        size = wanted.bit_count()
        for name, signature, own_size in self._signatures:
            common = 2 * (signature & wanted).bit_count()
            if common > _LEAST_SIMILARITY * (size + own_size) and permits(name):
                yield -common / (size + own_size), f"{self._server_id}:{name}"


def _signature(text: str, words: dict[str, int]) -> int:
    """The bits of the trigrams of all words; `words` keeps those of the words seen so far."""
    bits = 0
    for word in _WORD.findall(text[:MAX_COMPARED_CHARS].lower()):
        if word not in words:
            words[word] = _word_signature(word)
        bits |= words[word]
    return bits


def _word_signature(word: str) -> int:
    padded = f"  {word} ".encode("utf-8", "replace")
    bits = 0
    for at in range(len(padded) - 2):
        bits |= 1 << crc32(padded[at : at + 3]) % _SIGNATURE_BITS
    return bits
