"""Renders the answer of `tool_discovery`: the best result with its schema, each of the others in a few lines."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from weakref import WeakKeyDictionary

import msgspec

from pointsman.catalog.results import DOUBTFUL, SearchOutcome, SearchResult, leading
from pointsman.catalog.schema.lean import lean_schema
from pointsman.catalog.schema.signature import returns, signature
from pointsman.core.model import Json
from pointsman.providers.base import ToolDocument

# In characters of the answer's text, about four to a token.
DESCRIPTION = 150  # of every result but the best, which is shown in full
MAX_SENTENCE = 300  # the same for the first sentence of one whose beginning others share
SIGNATURE = 80
RETURNS = 60
LONG_SIGNATURE = 1_000  # of the best result, if its schema is not shown
LONG_RETURNS = 200
EXPLANATION = 60
MAX_SCHEMA = 8_000  # of the best result; a longer one is not shown
MAX_FURTHER_SCHEMA = 600  # of the best result for each further query
MAX_DESCRIPTION = 8_000  # of the best result; a longer one is clipped
MAX_OUTPUT_SCHEMA = 480  # of the best result; a longer one is summarised as `returns`
TOO_LONG = "The inputSchema is too long to show here; tool_execute shows it if the arguments do not fit."

_READ_CHARS = 4_000  # of a description, to shorten it
_VAGUE = re.compile(r"(?:any|object)(?:\[\])?|string|\{\w+\??: string\}")  # no more than that there is a text


def render_answer(outcome: SearchOutcome) -> Json:
    """All results in their order, the other tools of the best one's server, and the notice.

    The same outcome gives the same bytes.
    """
    content: Json = {"results": _render_results(outcome.results)}
    if outcome.more:
        content["more"] = outcome.more
    if outcome.notice:
        content["notice"] = outcome.notice
    return content


def _render_results(results: Sequence[SearchResult]) -> list[Json]:
    """The first is shown in full if it fits the request, the best of further queries with their schemas if those are
    short, the others with a signature.
    """
    texts = [_texts(result) for result in results]
    descriptions = _distinct([text.description for text in texts], results)
    leaders = leading(results)
    shown: list[Json] = []
    for place, (result, text, description) in enumerate(zip(results, texts, descriptions, strict=True)):
        if result.relevance < DOUBTFUL:
            shown.append(_render(result, description, text.rest if place == 0 else text.names))
        elif place == 0:
            shown.append(_render(result, *_in_full(result)))
        elif place in leaders and text.with_schema:
            shown.append(_render(result, description, text.with_schema))
        else:
            shown.append(_render(result, description, text.rest))
    return shown


def _render(result: SearchResult, description: str, rest: Json) -> Json:
    document = result.tool.document
    shown: Json = {
        "toolKey": document.tool_key,
        "toolName": document.tool_name,
        "serverName": document.server_name,
    }
    if description:
        shown["description"] = description
    shown["relevance"] = result.relevance
    if result.explanation:
        shown["explanation"] = clip(result.explanation, EXPLANATION)
    if result.intents:
        shown["intents"] = list(result.intents)
    return shown | rest


class _Texts(msgspec.Struct, frozen=True):
    """A tool as it is shown, apart from what depends on the request."""

    description: str
    names: Json  # the names of its parameters
    rest: Json  # its signature, what it returns, and its annotations
    with_schema: Json | None  # the same with its schema; None: it has none, or a long one


def _texts(result: SearchResult) -> _Texts:
    """Computed once for each definition of a tool."""
    document = result.tool.document
    texts = _cached_texts.get(document)
    if texts is None:
        texts = _cached_texts[document] = _make_texts(result.tool.tool, document)
    return texts


# A document lives exactly as long as its tool's definition stays the same.
_cached_texts: WeakKeyDictionary[ToolDocument, _Texts] = WeakKeyDictionary()
_cached_in_full: WeakKeyDictionary[ToolDocument, tuple[str, Json]] = WeakKeyDictionary()


def _make_texts(tool: Json, document: ToolDocument) -> _Texts:
    rest: Json = {}
    output, schema = tool.get("outputSchema"), tool.get("inputSchema")
    if isinstance(output, dict) and not _is_vague(returned := returns(output, RETURNS)):
        rest["returns"] = returned
    if annotations := _telling_annotations(tool.get("annotations") or {}):
        rest["annotations"] = annotations
    lean = lean_schema(schema) if isinstance(schema, dict) else None
    return _Texts(
        description=shorten(_prose(document.description), DESCRIPTION),
        names={"signature": signature(tool, SIGNATURE, typed=False)},
        rest={"signature": signature(tool, SIGNATURE), **rest},
        with_schema={"inputSchema": lean, **rest} if lean is not None and _size(lean) <= MAX_FURTHER_SCHEMA else None,
    )


def _in_full(result: SearchResult) -> tuple[str, Json]:
    """The description and the rest of the best result. Computed once for each definition of a tool."""
    document = result.tool.document
    full = _cached_in_full.get(document)
    if full is None:
        full = _cached_in_full[document] = _make_full(result.tool.tool, document)
    return full


def _make_full(tool: Json, document: ToolDocument) -> tuple[str, Json]:
    """With the whole description, the inputSchema unless that is too long, and the outputSchema if that is telling."""
    rest: Json = {}
    output, schema = tool.get("outputSchema"), tool.get("inputSchema")
    lean = lean_schema(schema) if isinstance(schema, dict) else None
    if lean is not None and _size(lean) <= MAX_SCHEMA:
        rest["inputSchema"] = lean
    else:
        rest["signature"] = signature(tool, LONG_SIGNATURE)
        if lean is not None:
            rest["hint"] = TOO_LONG
    if isinstance(output, dict):
        rest |= _show_output(output)
    if annotations := _telling_annotations(tool.get("annotations") or {}):
        rest["annotations"] = annotations
    description = document.description
    return (description if len(description) <= MAX_DESCRIPTION else clip(description, MAX_DESCRIPTION)), rest


def _show_output(output: Json) -> Json:
    """The outputSchema if it says more than types and is short, else a summary of it."""
    lean = lean_schema(output)
    if b'"description"' in (encoded := msgspec.json.encode(lean)) and len(encoded.decode()) <= MAX_OUTPUT_SCHEMA:
        return {"outputSchema": lean}
    returned = returns(output, LONG_RETURNS)
    return {} if _is_vague(returned) else {"returns": returned}


def _telling_annotations(annotations: Json) -> Json:
    """Those of the two hints that matter to a model which differ from the protocol's default.

    By default a tool may change things, and may destroy them. A tool that only reads destroys nothing.
    """
    if annotations.get("readOnlyHint") is True:
        return {"readOnlyHint": True}
    return {"destructiveHint": False} if annotations.get("destructiveHint") is False else {}


def _distinct(descriptions: Sequence[str], results: Sequence[SearchResult]) -> list[str]:
    """The descriptions, of which no two are cut to the same text: those begin where they differ."""
    shown = list(descriptions)
    alike: dict[str, list[int]] = {}
    for place, text in enumerate(descriptions):
        if text.endswith(ELLIPSIS):
            alike.setdefault(text, []).append(place)
    for places in alike.values():
        if len(places) > 1:
            whole = [_one_line(_prose(results[place].tool.document.description)) for place in places]
            cut = _told_apart(whole)
            for place, text in zip(places, whole, strict=True):
                shown[place] = cut[text]
    return shown


def _told_apart(texts: Sequence[str]) -> dict[str, str]:
    """Each text, cut so that no two are the same: from the sentence on in which it differs, or else from the word on.

    One with which others only begin is shown from its own beginning, with its first sentence.
    """
    cut: dict[str, str] = {}
    for boundaries in ((_SENTENCE_END, _WORD_END), (_WORD_END,)):
        starts = _differing_starts(texts, boundaries)
        cut = {text: _from(text, start) for text, start in starts.items()}
        if len(set(cut.values())) == len(cut):
            break
    return cut


def _from(text: str, start: int) -> str:
    if start:
        return ELLIPSIS + shorten(text[start:], DESCRIPTION)
    end = _SENTENCE_END.search(text)
    sentence = text[: end.end()] if end else text
    if not DESCRIPTION < len(sentence) <= MAX_SENTENCE:
        return shorten(text, DESCRIPTION)
    return sentence if sentence == text else sentence + ELLIPSIS


def _differing_starts(texts: Sequence[str], boundaries: Sequence[re.Pattern[str]]) -> dict[str, int]:
    """For each text, where the sentence begins that tells it from the text most like it, which is next to it when
    they are sorted.
    """
    order = sorted(set(texts))
    starts = dict.fromkeys(order, 0)
    for one, other in pairwise(order):
        if other.startswith(one):  # nothing in it tells it from the other
            starts[other] = max(starts[other], len(one) + (other[len(one)] == " "))
            continue
        start = _last_shared_start(one, other, boundaries)
        starts[one], starts[other] = max(starts[one], start), max(starts[other], start)
    return starts


def _last_shared_start(one: str, other: str, boundaries: Sequence[re.Pattern[str]]) -> int:
    """Where the sentence, or if it is the first one the word, begins in which two texts differ."""
    shared = bisect_left(range(min(len(one), len(other))), True, key=lambda end: one[: end + 1] != other[: end + 1])
    for boundary in boundaries:
        ends = [match.end() for match in boundary.finditer(one, 0, shared)]
        if ends:
            return ends[-1] + (one[ends[-1] : ends[-1] + 1] == " ")
    return 0


def _is_vague(returned: str) -> bool:
    return _VAGUE.fullmatch(returned) is not None


def _size(shown: Json) -> int:
    return len(msgspec.json.encode(shown).decode())


# The parameters and the result are shown by themselves.
_SECTION = re.compile(r"\n[ \t]*(?:args|arguments|parameters|params|returns|raises|examples?)[ \t]*:", re.IGNORECASE)


def _prose(description: str) -> str:
    """A description up to the sections of a docstring."""
    description = description[:_READ_CHARS]
    section = _SECTION.search(description)
    return description[: section.start()] if section and description[: section.start()].strip() else description


ELLIPSIS = "…"

# In Chinese and Japanese no space follows the full stop (3002) or the wide marks (ff01, ff1f), nor a comma.
_SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?](?= )|[\u3002\uff01\uff1f]")
_WORD_END = re.compile("[ ,;:\u3001\uff0c]")
_MIN_SHARE = 0.4  # of the room; a cut that would leave less is made later, at a worse place
_MAX_STRETCH = 1.2  # of the length that a text should have about


def clip(text: str, room: int) -> str:
    """One line of at most `room` characters, cut where a reader would: after a sentence, else after a word.

    Ends with an ellipsis if something was cut.
    """
    line = _one_line(text)
    if len(line) <= room:
        return line
    window = line[:room]  # one more than fits before the ellipsis, so that a boundary there is seen
    end = _last_end(_SENTENCE_END, window, after=True) or _last_end(_WORD_END, window, after=False) or room - 1
    return window[:end].rstrip() + ELLIPSIS


def shorten(text: str, about: int) -> str:
    """`clip`, but at the end of the sentence that is nearest to `about`, if one ends not far from it."""
    line = _one_line(text)
    if len(line) <= about * _MAX_STRETCH:
        return line
    ends = [match.end() for match in _SENTENCE_END.finditer(line, 0, round(about * _MAX_STRETCH))]
    near = [end for end in ends if end >= about * _MIN_SHARE]
    return line[: min(near, key=lambda end: abs(end - about))] + ELLIPSIS if near else clip(line, about)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _last_end(boundary: re.Pattern[str], window: str, *, after: bool) -> int | None:
    """The position of the last boundary that keeps enough text and leaves room for an ellipsis."""
    ends = [match.end() if after else match.start() for match in boundary.finditer(window)]
    fitting = [end for end in ends if len(window) * _MIN_SHARE <= end < len(window)]
    return fitting[-1] if fitting else None
