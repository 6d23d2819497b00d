"""Pins: a server's definitions as they were approved. What counts as a change, and what may be offered. Pure.

A definition is compared in a canonical form, in which neither the order of keys nor white space in texts counts. The
form must stay the same in later versions, or every pin would differ from its definition: change `FORMAT` with it.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from pointsman.core.escape import escaped
from pointsman.core.kinds import PROMPTS, TEMPLATES, TOOLS, ListKind
from pointsman.core.model import Json, ToolSource

PinMode = Literal["first-use", "schema", "locked", "off"]
Reason = Literal["changed", "new", "waiting", "not stored"]
"""Why a definition is held back. `waiting`: the pins were lost; `not stored`: the pins cannot be read or written."""

PinnedKind = Literal["tool", "prompt", "template", "instructions"]
PINNED: Final[Mapping[ListKind, PinnedKind]] = {TOOLS: "tool", PROMPTS: "prompt", TEMPLATES: "template"}
INSTRUCTIONS_NAME: Final = "instructions"

FORMAT: Final = 1
MAX_PINS: Final = 13_000  # of one server and kind: a list has at most 10,000 entries, and a stored value 1 MiB
MAX_DIFF_LINES: Final = 400
_MAX_COMPARED: Final = 2_000  # lines; the time to compare grows with their square
_MAX_LEAF_CHARS: Final = 20_000
_LINE_CHARS: Final = 100
_CONTEXT_LINES: Final = 2

_PROSE = frozenset({"title", "description", "$comment"})
_NO_PROSE_LEFT_OUT = frozenset({"_meta", "icons"})  # besides prose, by `pin: schema`
# Keywords of a schema whose values are compared as they are, and those whose objects have names for keys.
_VERBATIM = frozenset({"enum", "const", "default", "example", "examples", "pattern", "dependentRequired"})
_NAMES_INSIDE = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
_SETS = frozenset({"required", "type"})  # lists whose order means nothing

_sorted_json = msgspec.json.Encoder(order="sorted").encode
_OTHERWISE = (b"\x7f", b"null")  # in its JSON: `json` escapes the one, and msgspec writes the other also for infinity
_FLOAT = re.compile(rb"[0-9][.eE]")  # may be one, which they may write in two ways

_HASH_BYTES: Final = 16
_PIN_BYTES: Final = _HASH_BYTES + 32 + 32


class Digests(NamedTuple):
    """Of a definition in canonical form."""

    whole: bytes
    schema: bytes  # without texts for people and models

    def same(self, other: Digests, mode: PinMode) -> bool:
        return self.schema == other.schema if mode == "schema" else self.whole == other.whole


Table = Mapping[bytes, Digests]
"""The pins of one server and kind, by `name_hash`."""


class Held(Struct, frozen=True):
    """A definition that waits for approval."""

    kind: PinnedKind
    name: str
    reason: Reason
    digests: Digests
    entry: Json  # as the server sent it


def is_unread(held: Iterable[Held]) -> bool:
    """Whether the pins of a server cannot be read now, so that nothing of it can be approved."""
    return any(one.reason == "not stored" for one in held)


class Gone(Struct, frozen=True):
    """A definition that was approved and is not listed any more."""

    kind: PinnedKind
    name: str  # empty: it is not known, because the text was too long to be kept
    digest: str  # hex


class Admitted(Struct, frozen=True):
    """The entries of a list that may be offered, and the names of those that wait."""

    entries: dict[str, Json]
    changed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # new, or not to be trusted for another reason than a change

    @property
    def held(self) -> tuple[str, ...]:
        return self.changed + self.others


class Admission(Protocol):
    """Decides which definitions enter the catalog."""

    def version(self, server_id: str, /) -> int:
        """Grows whenever an answer of `admit` for this server may have become wrong."""
        ...

    def pins(self, server_id: str, /) -> bool:
        """Whether definitions of this server may be held back."""
        ...

    def waits(self, server_id: str, /) -> bool:
        """Whether nothing of this server may be used before it is approved."""
        ...

    def reports_changes(self, server_id: str, /) -> bool:
        """Whether changed definitions of this server are held back, and recorded then."""
        ...

    async def admit(self, source: ToolSource, kind: ListKind, entries: dict[str, Json], /) -> Admitted: ...

    def held(self, server_id: str, /) -> Sequence[Held]:
        """What waits for approval, by the last lists."""
        ...

    def is_refused(self, server_id: str, kind: ListKind, name: str, /) -> bool:
        """Whether a name must not be used, in a list or not, because there is no pin of it."""
        ...


def unread_servers(admission: Admission, servers: Iterable[str]) -> frozenset[str]:
    return frozenset(one for one in servers if is_unread(admission.held(one)))


class NoPins:
    """Fits `Admission`, and admits everything."""

    def version(self, server_id: str, /) -> int:
        return 0

    def pins(self, server_id: str, /) -> bool:
        return False

    def waits(self, server_id: str, /) -> bool:
        return False

    def reports_changes(self, server_id: str, /) -> bool:
        return False

    async def admit(self, source: ToolSource, kind: ListKind, entries: dict[str, Json], /) -> Admitted:
        return Admitted(entries)

    def held(self, server_id: str, /) -> Sequence[Held]:
        return ()

    def is_refused(self, server_id: str, kind: ListKind, name: str, /) -> bool:
        return False


# ------------------------------------------------------------------ the canonical form


def digests_of(entry: Json) -> Digests | None:
    """None: the definition has no canonical form, because it is nested too deeply."""
    try:
        whole, schema = _definition(entry)
        return Digests(sha256(_canonical(whole)).digest(), sha256(_canonical(schema)).digest())
    except (RecursionError, ValueError):
        return None


def canonical_json(entry: Json) -> bytes:
    """The definition's canonical form.

    Raises:
        RecursionError, ValueError: it has none.
    """
    return _canonical(_definition(entry)[0])


def _canonical(plain: Json) -> bytes:
    """As `json` writes it with sorted keys. For most definitions msgspec does so, too, in a fifth of the time."""
    try:
        encoded = _sorted_json(plain)
        if encoded.isascii() and not any(mark in encoded for mark in _OTHERWISE) and not _FLOAT.search(encoded):
            return encoded
    except ValueError:  # half a surrogate pair
        pass
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _definition(entry: Json) -> tuple[Json, Json]:
    """An entry in canonical form: with its texts for people and models, and without."""
    whole: Json = {}
    bare: Json = {}
    for key, value in entry.items():
        if key in _PROSE and isinstance(value, str):
            whole[key] = _one_line(value)
        elif key in ("inputSchema", "outputSchema"):
            whole[key], bare[key] = _schema(value)
        elif key == "annotations" and isinstance(value, dict):
            whole[key], bare[key] = _definition(value)
        elif key == "arguments" and isinstance(value, list):
            both = [_definition(one) if isinstance(one, dict) else (one, one) for one in value]
            whole[key], bare[key] = [one for one, _ in both], [one for _, one in both]
        else:
            whole[key] = value
            if key not in _NO_PROSE_LEFT_OUT:
                bare[key] = value
    return whole, bare


def _schema(schema: Any) -> tuple[Any, Any]:
    if isinstance(schema, list):
        both = [_schema(part) for part in schema]
        return [part for part, _ in both], [part for _, part in both]
    if not isinstance(schema, dict):
        return schema, schema
    whole: Json = {}
    bare: Json = {}
    for key, value in schema.items():
        if not isinstance(value, (dict, list)):
            if key in _PROSE and isinstance(value, str):
                whole[key] = _one_line(value)
            else:
                whole[key] = bare[key] = value
        elif key in _VERBATIM:
            whole[key] = bare[key] = value
        elif key in _SETS and isinstance(value, list) and all(isinstance(one, str) for one in value):
            whole[key] = bare[key] = sorted(value)
        elif key in _NAMES_INSIDE and isinstance(value, dict):
            inside, bare_inside = whole[key], bare[key] = {}, {}
            for name, part in value.items():
                inside[name], bare_inside[name] = _schema(part)
        else:
            whole[key], bare[key] = _schema(value)
    return whole, bare


def _one_line(text: str) -> str:
    return " ".join(text.split())


# ------------------------------------------------------------------ the decision


def name_hash(name: str) -> bytes:
    return sha256(name.encode(errors="surrogatepass")).digest()[:_HASH_BYTES]


def held_names(mode: PinMode, table: Table, digests: Mapping[str, Digests]) -> dict[str, Reason]:
    """The definitions that differ from their pin or have none."""
    held: dict[str, Reason] = {}
    for name, found in digests.items():
        pin = table.get(name_hash(name))
        if pin is None:
            held[name] = "new"
        elif not found.same(pin, mode):
            held[name] = "changed"
    return held


def pins_of(digests: Mapping[str, Digests]) -> dict[bytes, Digests]:
    return {name_hash(name): found for name, found in digests.items()}


def encode_table(table: Table) -> bytes:
    return bytes([FORMAT]) + b"".join(name + pin.whole + pin.schema for name, pin in table.items())


def name_in(kind: PinnedKind, text: bytes | None) -> str:
    """The name of a definition by its canonical form; empty: that is not known."""
    entry = json.loads(text) if text is not None else {}
    name = entry.get("uriTemplate" if kind == "template" else "name", "")
    return name if isinstance(name, str) else ""


def decode_table(value: bytes) -> dict[bytes, Digests]:
    """Raises ValueError: another version wrote it, or it is damaged."""
    if value[:1] != bytes([FORMAT]) or (len(value) - 1) % _PIN_BYTES:
        raise ValueError("pins of an unknown format")
    table: dict[bytes, Digests] = {}
    for at in range(1, len(value), _PIN_BYTES):
        whole = at + _HASH_BYTES
        table[value[at:whole]] = Digests(value[whole : whole + 32], value[whole + 32 : at + _PIN_BYTES])
    return table


# ------------------------------------------------------------------ for people


def diff_lines(before: bytes | None, entry: Json) -> list[str]:
    """What changed, as lines that begin with `-`, `+` or a space; `before` is canonical JSON, None: there is none."""
    old = _lines_of(json.loads(before))[:_MAX_COMPARED] if before is not None else []
    new = _lines_of(_definition(entry)[0])[:_MAX_COMPARED]
    lines = list(unified_diff(old, new, lineterm="", n=_CONTEXT_LINES))[2:]
    shown = [f"{line[:1]} {escaped(line[1:])}" for line in lines if not line.startswith("@@")]
    rest = len(shown) - MAX_DIFF_LINES
    return shown if rest <= 0 else [*shown[:MAX_DIFF_LINES], f"  ... and {rest} more lines"]


def _lines_of(value: Any) -> list[str]:
    """Every leaf on a line of its own, after its path; a long text on several."""
    return [line for path, leaf in _leaves(value, "") for line in _wrapped(path, leaf)]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key in sorted(value):
            yield from _leaves(value[key], f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(one, (dict, list)) for one in value):
        for index, one in enumerate(value):
            yield from _leaves(one, f"{path}[{index}]")
    else:
        yield path, value


def _wrapped(path: str, leaf: Any) -> Iterable[str]:
    text = leaf if isinstance(leaf, str) else json.dumps(leaf, ensure_ascii=False, sort_keys=True)
    if len(path) + len(text) <= _LINE_CHARS:
        return [f"{path}: {text}"]
    lines = textwrap.wrap(text[:_MAX_LEAF_CHARS], _LINE_CHARS, break_on_hyphens=False)
    return [f"{path}:", *(f"  {line}" for line in lines)]
