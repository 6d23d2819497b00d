"""Reads tool keys that a model wrote in another form, and finds the nearest keys to one that means nothing. Pure.

Both see only the tools that the caller may use, so neither reveals nor reaches any other. A text with a separator names
a server, whether or not there is one of that name, and is never read as the name of another server's tool: otherwise a
server could take over the keys of others by the names of its tools.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Literal
from zlib import crc32

from msgspec import Struct

from pointsman.catalog.overview import MAX_KEPT_CHARS
from pointsman.core.errors import UnknownToolError
from pointsman.core.model import ToolKey, ToolSource

MAX_KEY_CHARS = 512  # of a text that is read as a key; longer ones mean nothing
MAX_COMPARED_CHARS = 64  # of a key, when it is compared with others
MAX_SHOWN_CHARS = 200  # keys longer than that are not suggested
NEAREST = 3
MAX_NAMED = 5  # meanings, or servers, in one error
MAX_BARE_CHARS = MAX_KEPT_CHARS  # longer names are not remembered, so it is unknown who has them
_LEAST_SIMILARITY = 0.3

_SEPARATOR = re.compile(r":|__|[./]")  # between server and tool, as clients and models write it; in no server's id
_WEAK_SEPARATOR = "_"  # also in ids and names, so it separates only where there is no other
_CLIENT_PREFIX = "mcp__"
_OWN_PREFIX = re.compile(r"(?:mcp__?)?pointsman(?:__|[:./])|mcp_pointsman_|pointsman_(?!.*(?::|__|[./]))", re.DOTALL)
_WORD = re.compile(r"[^\W_]+")
_SIGNATURE_BITS = 512

KeyForm = Literal["qualified_name", "bare_name"]
"""`server__tool` and the like, which names a server; the name of a tool alone."""


class ServerNames(Struct, frozen=True):
    """The tools that a server last listed, and which of them the caller may use."""

    names: Collection[str] | None  # None: they are not known
    permits: Callable[[str], bool]
    expected: bool = True  # unknown names may still come, or were more than are kept

    def has(self, tool_name: str) -> bool:
        return self.names is not None and tool_name in self.names and self.permits(tool_name)

    def may_have(self, tool_name: str) -> bool:
        """Of unknown names even a forbidden one: as long as they are unknown, nothing tells the two apart."""
        return self.names is None or self.has(tool_name)


def read_key(text: str, servers: Mapping[str, ServerNames]) -> tuple[ToolKey, KeyForm] | None:
    """The one tool that `text` can mean, among all tools that the caller may use; None: it means nothing.

    Raises:
        UnknownToolError: it can mean several tools, or it names no server and the list of one is still expected.
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
    unlisted = [server_id for server_id, server in servers.items() if server.names is None and server.expected]
    if form == "bare_name" and unlisted:
        named = ", ".join(f"`{server_id}`" for server_id in unlisted[:MAX_NAMED])
        raise UnknownToolError(
            text,
            f"It can mean `{key}` or a tool of {named}, of which no list of tools has come so far: "
            "call again with a full key.",
        )
    return key, form


def may_still_list(source: ToolSource | None) -> bool:
    """Whether a server that gave no list may have tools that a caller means.

    One whose first start has failed never had any: no caller knows their names, so it keeps no name from others.
    """
    return source is None or source.restarting or source.status.state in ("starting", "running")


def _meanings(text: str, servers: Mapping[str, ServerNames]) -> dict[ToolKey, KeyForm]:
    found: dict[ToolKey, KeyForm] = {}
    for rest in _without_prefixes(text) if ":" not in text else ():
        if _SEPARATOR.search(rest) is None and len(rest) <= MAX_BARE_CHARS:
            found |= {
                ToolKey(server_id, rest): "bare_name" for server_id, server in servers.items() if server.has(rest)
            }
    for server_id, tool_name in _qualified(text, servers):
        server = servers.get(server_id)
        if server is not None and tool_name and server.may_have(tool_name):
            found[ToolKey(server_id, tool_name)] = "qualified_name"
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


def _qualified(text: str, servers: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The pairs of a server and a tool that the text can name."""
    for rest in _without_prefixes(text):
        separator = _SEPARATOR.search(rest)
        if separator is not None:
            yield rest[: separator.start()], rest[separator.end() :]
            continue
        heads = (f"{server_id}{_WEAK_SEPARATOR}" for server_id in servers)
        yield from ((head[:-1], rest[len(head) :]) for head in heads if rest.startswith(head))
    if text.startswith(_CLIENT_PREFIX):  # the name that a client has for the gateway may be any: the key is complete
        before, _, tool_name = text.partition(":")
        gateway, _, server_id = before.rpartition("__")
        if not gateway.endswith("_"):  # otherwise the id may begin with it
            yield server_id, tool_name


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

    def _keys(self, server_id: str, names: Collection[str]) -> _ServerKeys:
        keys = self._servers.get(server_id)
        if keys is None or keys.names is not names:
            keys = self._servers[server_id] = _ServerKeys(server_id, names)
        return keys


class _ServerKeys:
    def __init__(self, server_id: str, names: Collection[str]) -> None:
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
