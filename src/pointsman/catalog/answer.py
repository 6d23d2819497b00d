"""Renders the answer of `tool_discovery` within a token budget: the best results in full, the others in short."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec

from pointsman.catalog.results import DOUBTFUL, SearchOutcome, SearchResult
from pointsman.catalog.schema.signature import returns, signature
from pointsman.core.model import Json
from pointsman.providers.base import ToolDocument

# In characters of the answer's text, about four to a token.
BUDGET = 300
BUDGET_EACH = 220  # added for every result
FULL_EXPLANATION = 60
NEAR_THE_BEST = 0.8  # a result this close to the best in relevance may be shown in full as well
MAX_SCHEMA = 8_000  # a longer one is never shown
MAX_DESCRIPTION = 8_000  # of the best result; a longer one is clipped
MAX_OUTPUT_SCHEMA = 480  # of the best result; a longer one, and those of the others, are summarised as `returns`
TOO_LONG = "The inputSchema is too long to show here; tool_execute shows it if the arguments do not fit."


@dataclass(frozen=True, slots=True)
class Form:
    """How much of a result is shown when its schema is not."""

    description: int  # characters
    signature: int
    explanation: int
    returns: int  # taken from the signature's room
    title: int  # of the annotations


LEAN = Form(description=44, signature=64, explanation=0, returns=32, title=0)
SHORT = Form(description=140, signature=140, explanation=60, returns=80, title=60)
LONG = Form(description=1_000, signature=1_000, explanation=60, returns=200, title=60)


def render_answer(outcome: SearchOutcome) -> Json:
    """All results in their order, and the notice. The same outcome gives the same bytes."""
    content: Json = {"results": _render_results(outcome.results)}
    if outcome.notice:
        content["notice"] = outcome.notice
    return content


def _render_results(results: Sequence[SearchResult]) -> list[Json]:
    """All start lean. The best is shown in full if it fits the request, and the others grow while the budget lasts."""
    page = _Page(results)
    fitting = [index for index, result in enumerate(results) if result.relevance >= DOUBTFUL]
    full: set[int] = set()
    if fitting and fitting[0] == 0:
        best = _render_best(results[0])
        page.replace(0, best, _size(best))
        full.add(0)
    for index in _leaders(results):
        if index in fitting and index not in full and page.grow(index, _render_full(results[index])):
            full.add(index)
    for index, result in enumerate(results):
        if index not in full:
            page.grow(index, _render_without_schema(result, SHORT))
    for index in fitting:
        near = results[index].relevance >= NEAR_THE_BEST * results[0].relevance
        if near and index not in full and page.grow(index, _render_full(results[index])):
            full.add(index)
    return page.shown


class _Page:
    """The results as they are shown so far, and the rest of the budget."""

    def __init__(self, results: Sequence[SearchResult]) -> None:
        self.shown = [_render_without_schema(result, LEAN) for result in results]
        self._sizes = [_size(shown) for shown in self.shown]
        self._room = BUDGET + BUDGET_EACH * len(results) - sum(self._sizes)

    def grow(self, index: int, better: Json) -> bool:
        """Show one result in a longer form if the budget allows it."""
        size = _size(better)
        if size - self._sizes[index] > self._room:
            return False
        self.replace(index, better, size)
        return True

    def replace(self, index: int, better: Json, size: int) -> None:
        self._room -= size - self._sizes[index]
        self.shown[index], self._sizes[index] = better, size


def _leaders(results: Sequence[SearchResult]) -> list[int]:
    """The best result for each query, where there are several."""
    leaders: list[int] = []
    served: set[int] = set()
    for index, result in enumerate(results):
        if not served.issuperset(result.intents):
            leaders.append(index)
            served.update(result.intents)
    return leaders


def _render_without_schema(result: SearchResult, form: Form) -> Json:
    texts = _texts(result, form)
    shown = _render_head(result, texts.description, form.explanation)
    shown["signature"] = texts.signature
    return _add_rest(shown, result, form, texts)


def _render_best(result: SearchResult) -> Json:
    """In full, with its outputSchema if that is short."""
    shown = _render_full(result)
    schema = result.tool.tool.get("outputSchema")
    if not isinstance(schema, dict):
        return shown
    if _size(schema) > MAX_OUTPUT_SCHEMA:
        return {**shown, "returns": _texts(result, LONG).returns}
    shown.pop("returns", None)
    return {**shown, "outputSchema": schema}


def _render_full(result: SearchResult) -> Json:
    """With its inputSchema, unless there is none or it is too long."""
    schema = result.tool.tool.get("inputSchema")
    if not isinstance(schema, dict):
        return _render_without_schema(result, LONG)
    if _size(schema) > MAX_SCHEMA:
        return {**_render_without_schema(result, LONG), "hint": TOO_LONG}
    description = result.tool.document.description
    if len(description) > MAX_DESCRIPTION:
        description = clip(description, MAX_DESCRIPTION)
    shown = _render_head(result, description, FULL_EXPLANATION)
    shown["inputSchema"] = schema
    return _add_rest(shown, result, SHORT, _texts(result, SHORT))


def _render_head(result: SearchResult, description: str, explanation: int) -> Json:
    document = result.tool.document
    shown: Json = {
        "toolKey": document.tool_key,
        "toolName": document.tool_name,
        "serverName": document.server_name,
    }
    if description:
        shown["description"] = description
    shown["relevance"] = result.relevance
    if explanation and result.explanation:
        shown["explanation"] = clip(result.explanation, explanation)
    if result.intents:
        shown["intents"] = list(result.intents)
    return shown


def _add_rest(shown: Json, result: SearchResult, form: Form, texts: _Texts) -> Json:
    """Add what a call returns and the annotations: the hints, and the title if the form has room for it."""
    if texts.returns:
        shown["returns"] = texts.returns
    annotations = dict(result.tool.tool.get("annotations") or {})
    title = annotations.pop("title", "")
    if title and form.title:
        annotations = {"title": clip(title, form.title), **annotations}
    if annotations:
        shown["annotations"] = annotations
    return shown


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of a tool in one form, without its schema."""

    description: str
    signature: str
    returns: str  # empty: the tool declares no outputSchema


def _texts(result: SearchResult, form: Form) -> _Texts:
    """Computed once for each definition of a tool."""
    by_form = _cached_texts.get(result.tool.document)
    if by_form is None:
        by_form = _cached_texts[result.tool.document] = {}
    texts = by_form.get(form.signature)
    if texts is None:
        texts = by_form[form.signature] = _make_texts(result, form)
    return texts


def _make_texts(result: SearchResult, form: Form) -> _Texts:
    tool = result.tool.tool
    output = tool.get("outputSchema")
    description = clip(result.tool.document.description, form.description)
    if not isinstance(output, dict):
        return _Texts(description, signature(tool, form.signature), "")
    returned = returns(output, form.returns)
    in_one_line = signature(tool, form.signature - len(returned), with_result=False)
    return _Texts(description, in_one_line, returned)


# A document lives exactly as long as its tool's definition stays the same.
_cached_texts: WeakKeyDictionary[ToolDocument, dict[int, _Texts]] = WeakKeyDictionary()


def _size(shown: Json) -> int:
    return len(msgspec.json.encode(shown).decode())


ELLIPSIS = "…"

# In Chinese and Japanese no space follows the full stop (3002) or the wide marks (ff01, ff1f), nor a comma.
_SENTENCE_END = re.compile("[.!?](?= )|[\u3002\uff01\uff1f]")
_WORD_END = re.compile("[ ,;:\u3001\uff0c]")
_MIN_SHARE = 0.4  # of the room; a cut that would leave less is made later, at a worse place


def clip(text: str, room: int) -> str:
    """One line of at most `room` characters, cut where a reader would: after a sentence, else after a word.

    Ends with an ellipsis if something was cut.
    """
    line = " ".join(text.split())
    if len(line) <= room:
        return line
    window = line[:room]  # one more than fits before the ellipsis, so that a boundary there is seen
    end = _last_end(_SENTENCE_END, window, after=True) or _last_end(_WORD_END, window, after=False) or room - 1
    return window[:end].rstrip() + ELLIPSIS


def _last_end(boundary: re.Pattern[str], window: str, *, after: bool) -> int | None:
    """The position of the last boundary that keeps enough text and leaves room for an ellipsis."""
    ends = [match.end() if after else match.start() for match in boundary.finditer(window)]
    fitting = [end for end in ends if len(window) * _MIN_SHARE <= end < len(window)]
    return fitting[-1] if fitting else None
