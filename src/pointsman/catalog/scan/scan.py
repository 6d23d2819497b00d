"""Flags definitions that an operator should read: text for the model, hidden text, names that can be mistaken.

Pure: definitions in, flags out. docs/concepts/poisoning.md says what these rules can and cannot do. All of them take
time in proportion to the text: gaps in expressions are bounded, and names are compared with a bounded number of others.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from pointsman.catalog.pins import PinnedKind
from pointsman.core.model import Json
from pointsman.providers.visible import visible, visible_line

Rule = Literal[
    "overrides",
    "secrecy",
    "markup",
    "precedence",
    "secrets",
    "persona",
    "encoded",
    "long",
    "hidden",
    "same",
    "near",
    "names",
]

MEANINGS: Final[Mapping[Rule, str]] = {
    "overrides": "tells the model to ignore its instructions",
    "secrecy": "tells the model to keep something from the user",
    "markup": "has markup that imitates instructions of the system",
    "precedence": "wants to be used before, or in place of, other tools",
    "secrets": "asks for secrets, private files or the conversation",
    "persona": "addresses the model, or gives it a part to play",
    "encoded": "has a long encoded text, which cannot be read",
    "long": "has more text than is read here",
    "hidden": "has characters that people cannot see, which were removed",
    "same": "has the name of a tool of another server, and another definition",
    "near": "has nearly the name of a tool of another server",
    "names": "names a tool of another server in its text",
}

MAX_TEXTS: Final = 2_000  # of one definition
MAX_CHARS: Final = 65_536  # of one definition
MAX_DEPTH: Final = 100
_SHORTEST: Final = 8  # of the name of a parameter that is read: no passage is shorter
MAX_FLAGS: Final = 5  # of one tool; the first say enough
SHOWN_CHARS: Final = 120
MAX_NAME_CHARS: Final = 128  # of a name that is compared
MAX_LOOKED_AT: Final = 1_000  # names that share a piece with one name
MAX_COMPARED: Final = 20  # of these, the names that it is compared with letter by letter
_MIN_CHARS_ONE: Final = 5  # of a name for which one edit makes it near, and for which two do
_MIN_CHARS_TWO: Final = 9

_GAP = r"[^.\n]{0,60}?"  # within a sentence
_TOOLS = r"(?:tools?|functions?|servers?)"
_MODEL = r"(?:ai|llms?|language models?|assistants?|agents?|claude|chatgpt|gpt|copilot|gemini|cursor)"
_SECRETS = r"(?:api[ _-]?keys?|passwords?|credentials|secrets)"
_PASSAGES: Final[Mapping[Rule, Sequence[str]]] = {
    "overrides": (
        rf"\b(?:ignore|disregard|forget|override|bypass)\b{_GAP}"
        r"\b(?:previous|prior|above|earlier|preceding|system|developer|your|all|other|safety)\b[^.\n]{0,20}?"
        r"\b(?:instructions?|prompts?|rules|guidelines|polic(?:y|ies)|constraints|messages)\b",
        r"\b(?:ignore|disregard|forget) (?:all |everything |anything |what is |what was )?(?:of )?(?:the )?"
        r"(?:above|foregoing)(?: (?:text|content))? ?(?:[.,;:!]|and\b|then\b|$)",
        r"\b(?:ignore|disregard|forget) (?:everything|anything|all|whatever)(?: that)? "
        r"(?:you(?: were|.ve been| have been| know| had been)\b|(?:was |is )?(?:said|written|told)\b|before\b|above\b)",
    ),
    "secrecy": (
        rf"\b(?:do not|don.t|never|must not|should not|avoid|without)\b{_GAP}"
        r"\b(?:tell|mention|inform|reveal|notify|alert|warn|show|disclos)(?:e|ing)?\b[^.\n]{0,30}?"
        r"\b(?:users?|humans?|persons?|operators?|anyone|anybody)\b",
        r"\b(?:secretly|silently|covertly|quietly) (?:send|copy|forward|read|call|add|include|pass|use|run)\b",
        r"\b(?:hide|conceal|withhold) (?:this |it |that )?from (?:the )?(?:user|human|person)",
        r"\bkeep (?:this|it|that|them|everything|all of this)(?: a)? ?(?:secret|hidden|private|quiet|confidential)?"
        r" ?from (?:the |your )?(?:user|human|person|operator)",
        r"\b(?:do not|don.t|never|must not|should not) (?:mention|reveal|disclose|tell|say|admit)\b[^.\n]{0,20}?"
        r"\bthat you\b",
    ),
    "markup": (
        r"</?\s?(?:important|system|instructions?|secret|hidden|critical|assistant|admin|prompt|override|rules?)\b"
        r"[^<>\n]{0,40}>",
        r"\[/?inst\]",
        r"<\|[a-z_]{2,20}\|>",
        rf"#{{1,6}} {{0,4}}(?:system\b|instructions? (?:for|to) (?:the )?(?:model\b|{_MODEL}\b))",
        r"#{1,6} {0,4}instructions?:",
        r"(?:^|[\n.!]) {0,4}(?:system|assistant)(?: (?:prompt|message|instructions?|override))?: ",
    ),
    "precedence": (
        r"\b(?:before|prior to) (?:you )?(?:us|call|run|runn|invok|execut)(?:e|ing)? "
        rf"(?:any|all|every|each|other|another) (?:other )?{_TOOLS}\b",
        rf"\binstead of (?:all |any |the )?(?:other|another|similar|competing) {_TOOLS}\b",
        rf"\b(?:never|do not|don.t|must not) (?:use|call|invoke|run) (?:any )?other {_TOOLS}\b",
        r"\b(?:takes?|has|have) (?:precedence|priority) over\b",
        r"\bthis tool (?:must|should|has to) (?:always )?be (?:called|used|run|invoked) (?:first|before)\b",
        r"\b(?:first|this|it|tool),? (?:first,? )?(?:before|prior to) (?:any|all|every|each)(?: of the)? other "
        rf"{_TOOLS}\b",
        r"\b(?:always|must) (?:call|use|run|invoke) (?:this|it)(?: tool)? first\b",
        r"\bbefore (?:answering|responding|replying)\b[^.\n]{0,20}?\b(?:always|must)\b[^.\n]{0,20}?"
        r"\b(?:call|use|run|invoke) this\b",
    ),
    "secrets": (
        r"\b(?:read|open|load|cat|send|include|pass|attach|append|provide|copy|forward|upload|submit|paste|put)\b"
        rf"{_GAP}(?:~/\.(?:ssh|aws|cursor|config|gnupg)|\bid_(?:rsa|ed25519)\b|(?<![\w*])\.env\b|\bmcp\.json\b|"
        r"/etc/passwd\b|\b(?:private|ssh) keys?\b|\bsystem prompt\b|"
        r"\b(?:conversation|chat|message) (?:history|log|so far)\b|"
        r"\b(?:whole|full|entire|complete|previous) (?:conversation|chat|dialogue)\b|"
        rf"\byour (?:{_SECRETS}|instructions|memory|context window)\b|\buser.?s? {_SECRETS}\b)",
        # The name of a parameter, in which words are joined: `content_from_reading_ssh_id_rsa`.
        r"\b\w{0,60}(?:content|read|file|load|dump)\w{0,40}_(?:id_(?:rsa|ed25519)|ssh_key|private_key|etc_passwd|"
        r"mcp_json|aws_credentials|dot_?env|system_prompt)\b",
    ),
    "persona": (
        r"\byou are (?:now )?(?:an?|the) (?:\w{1,20} ){0,2}"
        r"(?:assistant|ai|agent|model|llm|system|expert|administrator)\b",
        r"\bas an? (?:ai|llm|language model|ai assistant)\b",
        r"\b(?:dear|attention|hey|hello|note to|message for|message to|instructions? for|instructions? to)[:,]? "
        rf"(?:the |all |any )?{_MODEL}\b",
        r"\b(?:ai|llm|assistant|language model) (?:must|shall|has to|needs to) (?:also |always |first |never )?"
        r"(?:call|use|read|send|include|pass|run|execute|follow|obey)\b",
    ),
    "encoded": (r"[a-z0-9+/]{160}", r"(?:\\x[0-9a-f]{2}){24}", r"(?:%[0-9a-f]{2}){40}"),
}
_RULES: Final[tuple[tuple[Rule, re.Pattern[str]], ...]] = tuple(
    (rule, re.compile("|".join(forms))) for rule, forms in _PASSAGES.items()
)
# A text without any of these words cannot match, and to look for them is quicker: most texts end here.
_NEEDED: Final[Mapping[str, Sequence[str]]] = {
    rule: tuple(words.split("|"))
    for rule, words in (
        ("overrides", "ignore|disregard|forget|override|bypass"),
        ("secrecy", "user|human|person|operator|anyone|anybody|secretly|silently|covertly|quietly|that you"),
        ("markup", "<|[inst]|[/inst]|#|system|assistant"),
        ("precedence", "before|prior to|instead of|other|precedence|priority|this tool|first"),
        (
            "secrets",
            "~/|id_|.env|mcp.json|/etc/| key|prompt|conversation|chat|message|dialogue|your |user|_key|_passwd|_json|"
            "_credentials|env",
        ),
        ("persona", "you are|as a|dear|attention|hey|hello|note to|message|instruction|must|shall|has to|needs to"),
    )
}
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{2,160}")
_DISTINCT = re.compile(r"[A-Za-z0-9][_.:-][A-Za-z0-9]|[a-z][A-Z]")  # no word of prose: it joins two

# Letters and digits that look like others, after NFKC and case folding: Cyrillic, Greek, and what fonts confuse.
_ALIKE: Final = {
    "a": "\u0430\u03b1",
    "b": "\u0431\u0432\u044c\u03b2",
    "c": "\u0441",
    "d": "\u0501",
    "e": "\u0435\u0451\u03b5",
    "h": "\u043d\u04bb",
    "i": "\u0456\u0438\u03b9!\u0131",
    "j": "\u0458",
    "k": "\u043a\u03ba",
    "l": "1|\u0142",
    "m": "\u043c",
    "n": "\u03c0\u03b7",
    "o": "\u043e\u03bf0",
    "p": "\u0440\u03c1",
    "q": "\u051b",
    "r": "\u0433",
    "s": "\u0437\u04555$",
    "t": "\u0442\u1d1b\u03c4",
    "u": "\u03c5",
    "v": "\u03bd",
    "w": "\u051d\u03c9",
    "x": "\u0445\u03c7",
    "y": "\u0443\u03b3",
}
_LOOK_ALIKES: Final = {ord(one): letter for letter, alike in _ALIKE.items() for one in alike}
_SEPARATORS: Final = str.maketrans("", "", "_-. :/")


class Flag(Struct, frozen=True):
    """One reason to read a definition."""

    tool: str  # its name
    rule: Rule
    place: str  # the part of the definition
    excerpt: str  # visible characters, on one line; for `near` and `names` the other tool's key
    kind: PinnedKind = "tool"

    @property
    def text(self) -> str:
        """For people."""
        shown = (
            f"`{self.excerpt}`"
            if self.rule in ("same", "near", "names")
            else f'"{self.excerpt}"'
            if self.excerpt
            else ""
        )
        return f"{MEANINGS[self.rule]}{f' ({self.place})' if self.place else ''}{f': {shown}' if shown else ''}"


# --- one definition


def scan_hidden(name: str, tool: Json) -> tuple[Flag, ...]:
    """Flag the texts of a definition, as the server sent it, that have invisible characters."""
    flags: list[Flag] = []
    for place, text in _limited(_texts(tool)):
        plain = _LINE_ENDS.sub("\n", text)
        shown = visible(plain)
        if hidden := len(plain) - len(shown):
            flags.append(Flag(name, "hidden", place, f"{hidden} in {visible_line(shown, SHOWN_CHARS - 20)}"))
            if len(flags) >= MAX_FLAGS:
                break
    return tuple(flags)


def scan_tool(name: str, tool: Json) -> tuple[Flag, ...]:
    """Flag passages in a definition."""
    flags: list[Flag] = []
    places: list[tuple[int, str]] = []  # where each text begins in all of them together
    texts: list[str] = []
    size = 0
    for place, text in _texts(tool):
        if len(texts) >= MAX_TEXTS or size + len(text) > MAX_CHARS:
            flags.append(Flag(name, "long", place, f"more than {MAX_CHARS} characters or {MAX_TEXTS} texts"))
            break
        places.append((size, place))
        texts.append(text)
        size += len(text) + 1
    together = "\n".join(texts).translate(_LOWER).lower()  # no rule reads across a line
    for rule, pattern in _RULES:
        if rule in _NEEDED and not any(word in together for word in _NEEDED[rule]):
            continue
        if (found := pattern.search(together)) is not None:
            at = bisect_right(places, (found.start(), _LAST)) - 1
            flags.append(Flag(name, rule, places[at][1], _excerpt(texts[at], found.start() - places[at][0])))
    return tuple(flags[:MAX_FLAGS])


_LOWER = {0x130: "i"}  # the one letter that becomes two in lower case
_LAST = "\U0010ffff"  # sorts after every place


def _excerpt(text: str, at: int) -> str:
    start = max(at - 20, 0)
    return visible_line(text[start : start + SHOWN_CHARS * 2], SHOWN_CHARS)


def _texts(tool: Json) -> Iterator[tuple[str, str]]:
    """All texts of a definition with their places, names of parameters included, down to MAX_DEPTH."""
    for place in ("title", "description", "annotations", "arguments", "inputSchema", "outputSchema"):
        if place in tool:
            yield from _inside(tool[place], place, MAX_DEPTH)


def _inside(value: Any, place: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif depth and isinstance(value, dict):
        for key, part in value.items():
            if len(key) >= _SHORTEST:
                yield place, key
            yield from _inside(part, _place(place, key), depth - 1)
    elif depth and isinstance(value, list):
        for part in value:
            yield from _inside(part, place, depth - 1)


def _place(place: str, key: str) -> str:
    """Such as `inputSchema.city.description`: without the keywords between the names."""
    return place if key in ("properties", "items") or len(place) > SHOWN_CHARS else f"{place}.{visible_line(key, 40)}"


# --- many servers


def scan_names(servers: Mapping[str, Mapping[str, Json]]) -> dict[str, list[Flag]]:
    """Flag tools whose names are near those of other servers, or whose texts name them. `servers` maps ids to tools."""
    flags: dict[str, list[Flag]] = defaultdict(list)
    index = _NameIndex((server_id, name) for server_id, tools in servers.items() for name in tools)
    owners: dict[str, set[str]] = defaultdict(set)
    for server_id, tools in servers.items():
        for name in tools:
            for written in (name, f"{server_id}:{name}", f"{server_id}__{name}"):
                if _DISTINCT.search(written):
                    owners[written].add(server_id)
    for server_id, tools in servers.items():
        for name, tool in tools.items():
            if (same := index.same(server_id, name)) and _DISTINCT.search(name) and servers[same][name] != tool:
                flags[server_id].append(Flag(name, "same", "name", visible_line(f"{same}:{name}", SHOWN_CHARS)))
            elif near := index.near(server_id, name, tools):
                flags[server_id].append(Flag(name, "near", "name", visible_line(near, SHOWN_CHARS)))
            flags[server_id] += _names_others(server_id, name, tool, owners)
    return {server_id: found for server_id, found in flags.items() if found}


def _names_others(server_id: str, name: str, tool: Json, owners: Mapping[str, set[str]]) -> list[Flag]:
    found: dict[str, Flag] = {}
    for place, text in _limited(_texts(tool)):
        for word in _WORD.findall(text) if _DISTINCT.search(text) else ():
            others = owners.get(word.rstrip(".:-"))
            if others and server_id not in others:
                other = word.rstrip(".:-")
                key = other if ":" in other else f"{min(others)}:{other}"
                found.setdefault(key, Flag(name, "names", place, visible_line(key, SHOWN_CHARS)))
                if len(found) >= MAX_FLAGS:
                    return list(found.values())
    return list(found.values())


def _limited(texts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    chars = 0
    for number, (place, text) in enumerate(texts):
        chars += len(text)
        if number >= MAX_TEXTS or chars > MAX_CHARS:
            return
        yield place, text


class _Name(NamedTuple):
    server_id: str
    name: str
    folded: str
    letters: int


class _NameIndex:
    """Finds names of other servers within two edits.

    A name is cut into three pieces. Of two names within two edits, one has a piece of the other unchanged, at most two
    places away: names without a piece in common are not compared. Rare pieces come first, and the work for one name is
    bounded: among thousands of names with the same pieces, a near one may be missed.
    """

    def __init__(self, names: Iterable[tuple[str, str]]) -> None:
        self._alike: dict[str, dict[str, str]] = defaultdict(dict)  # by the folded name: server and name
        self._pieces: dict[tuple[int, int, str], list[_Name]] = defaultdict(list)
        for server_id, name in names:
            folded = folded_name(name)
            if server_id in self._alike[folded]:
                continue
            self._alike[folded][server_id] = name
            if _edits_for(len(folded)) and len(folded) <= MAX_NAME_CHARS:
                entry = _Name(server_id, name, folded, _letters(folded))
                for number, (start, end) in enumerate(_cuts(len(folded))):
                    self._pieces[len(folded), number, folded[start:end]].append(entry)

    def same(self, server_id: str, name: str) -> str | None:
        """Another server with a tool of that name."""
        alike = islice(self._alike[folded_name(name)].items(), MAX_COMPARED)
        return next((other for other, its_name in alike if other != server_id and its_name == name), None)

    def near(self, server_id: str, name: str, own: Container[str]) -> str | None:
        """The key of a tool of another server whose name could be taken for this one.

        Not if the server has that name as well: then the other is a second one of its kind.
        """
        folded = folded_name(name)
        for other, its_name in islice(self._alike[folded].items(), MAX_COMPARED):
            if other != server_id and its_name not in own:
                return f"{other}:{its_name}"
        edits = _edits_for(len(folded))
        if not edits or len(folded) > MAX_NAME_CHARS:
            return None
        letters, compared = _letters(folded), 0
        for one in islice(self._sharing_a_piece(folded, edits), MAX_LOOKED_AT):
            if (letters ^ one.letters).bit_count() > 2 * edits or one.server_id == server_id or one.name in own:
                continue
            if one.folded == folded:
                continue
            if within_edits(folded, one.folded, min(edits, _edits_for(len(one.folded)))):
                return f"{one.server_id}:{one.name}"
            compared += 1
            if compared >= MAX_COMPARED:
                break
        return None

    def _sharing_a_piece(self, folded: str, edits: int) -> Iterator[_Name]:
        found = []
        for length in range(len(folded) - edits, len(folded) + edits + 1):
            for number, (start, end) in enumerate(_cuts(length)):
                for first in range(max(start - edits, 0), min(start + edits, len(folded) - end + start) + 1):
                    names = self._pieces.get((length, number, folded[first : first + end - start]))
                    found += [names] if names else []
        found.sort(key=len)
        return chain.from_iterable(found)


def folded_name(name: str) -> str:
    """The name as it looks: without case, separators and marks, and with one letter for all that look alike."""
    if name.isascii():
        plain = name.lower()
    else:
        split = unicodedata.normalize("NFKD", visible(name[: 4 * MAX_NAME_CHARS])).casefold()
        plain = "".join(each for each in split if not unicodedata.combining(each))
    return plain.translate(_SEPARATORS).translate(_LOOK_ALIKES).replace("rn", "m").replace("vv", "w")


def within_edits(one: str, other: str, edits: int) -> bool:
    """Whether one text becomes the other by so many insertions, deletions and replacements of one character."""
    if len(one) < len(other):
        one, other = other, one
    if len(one) - len(other) > edits:
        return False
    while other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    start = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(other))
    one, other = one[start:], other[start:]
    if not edits or not other:
        return len(one) <= edits
    replaced, removed = (one[1:], other[1:]), (one[1:], other)
    inserted = (one, other[1:])
    return any(within_edits(*rest, edits - 1) for rest in (replaced, removed, inserted))


def _edits_for(length: int) -> int:
    """How many edits make a name of that length near: short names are near by chance."""
    return 0 if length < _MIN_CHARS_ONE else 1 if length < _MIN_CHARS_TWO else 2


def _cuts(length: int) -> tuple[tuple[int, int], ...]:
    first, second = length // 3, 2 * length // 3
    return (0, first), (first, second), (second, length)


def _letters(text: str) -> int:
    """A bit for each letter in a text: two that differ in many are far apart."""
    found = 0
    for letter in text:
        found |= 1 << (ord(letter) & 63)
    return found
