"""What `tool_discovery` shows of its results within a budget of tokens: the best in full, the others in short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec

from pointsman.catalog.clipping import clipped
from pointsman.catalog.notices import DOUBTFUL
from pointsman.catalog.results import Found, SearchOutcome
from pointsman.catalog.signature import returns, signature
from pointsman.core.model import Json
from pointsman.providers.base import ToolDocument

# In characters of the answer's text, about four to a token.
BUDGET = 300
BUDGET_EACH = 220  # for every result
FULL_EXPLANATION = 60
NEAR_THE_BEST = 0.8  # a result this close to the best in relevance may be shown in full as well
MAX_SCHEMA = 8_000  # a longer one is not shown, however good the tool
MAX_DESCRIPTION = 8_000  # of the best result; a longer one is cut
MAX_OUTPUT_SCHEMA = 480  # of the best result; a longer one, and those of the others, are told as `returns`
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


def answer(outcome: SearchOutcome) -> Json:
    """All results in their order, and the notice. The same outcome gives the same bytes."""
    content: Json = {"results": _shown(outcome.results)}
    if outcome.notice:
        content["notice"] = outcome.notice
    return content


def _shown(results: Sequence[Found]) -> list[Json]:
    """All begin lean. The best is shown in full if it fits at all, and the others grow while the budget lasts."""
    page = _Page(results)
    worth = [index for index, found in enumerate(results) if found.relevance >= DOUBTFUL]
    full: set[int] = set()
    if worth and worth[0] == 0:
        page.put(0, _as_best(results[0]))
        full.add(0)
    for index in _leaders(results):
        if index in worth and index not in full and page.grow(index, _in_full(results[index])):
            full.add(index)
    for index, found in enumerate(results):
        if index not in full:
            page.grow(index, _without_schema(found, SHORT))
    for index in worth:
        near = results[index].relevance >= NEAR_THE_BEST * results[0].relevance
        if near and index not in full and page.grow(index, _in_full(results[index])):
            full.add(index)
    return page.shown


class _Page:
    """The results as they are shown so far, and what is left of the budget."""

    def __init__(self, results: Sequence[Found]) -> None:
        self.shown = [_without_schema(found, LEAN) for found in results]
        self._sizes = [_size(shown) for shown in self.shown]
        self._room = BUDGET + BUDGET_EACH * len(results) - sum(self._sizes)

    def grow(self, index: int, better: Json) -> bool:
        """Show one result another way, if that can be afforded."""
        if _size(better) - self._sizes[index] > self._room:
            return False
        self.put(index, better)
        return True

    def put(self, index: int, better: Json) -> None:
        size = _size(better)
        self._room -= size - self._sizes[index]
        self.shown[index], self._sizes[index] = better, size


def _leaders(results: Sequence[Found]) -> list[int]:
    """The best result for each query, where there are several."""
    leaders: list[int] = []
    served: set[int] = set()
    for index, found in enumerate(results):
        if not served.issuperset(found.intents):
            leaders.append(index)
            served.update(found.intents)
    return leaders


def _without_schema(found: Found, form: Form) -> Json:
    texts = _texts(found, form)
    shown = _head(found, texts.description, form.explanation)
    shown["signature"] = texts.signature
    return _with_rest(shown, found, form)


def _as_best(found: Found) -> Json:
    """In full, with its outputSchema if that is short."""
    shown = _in_full(found)
    schema = found.tool.tool.get("outputSchema")
    if not isinstance(schema, dict):
        return shown
    if _size(schema) > MAX_OUTPUT_SCHEMA:
        return {**shown, "returns": _texts(found, LONG).returns}
    shown.pop("returns", None)
    return {**shown, "outputSchema": schema}


def _in_full(found: Found) -> Json:
    """With its schema, unless there is none or it would drown everything else."""
    schema = found.tool.tool.get("inputSchema")
    if not isinstance(schema, dict):
        return _without_schema(found, LONG)
    if _size(schema) > MAX_SCHEMA:
        return {**_without_schema(found, LONG), "hint": TOO_LONG}
    description = found.tool.document.description
    if len(description) > MAX_DESCRIPTION:
        description = clipped(description, MAX_DESCRIPTION)
    shown = _head(found, description, FULL_EXPLANATION)
    shown["inputSchema"] = schema
    return _with_rest(shown, found, SHORT)


def _head(found: Found, description: str, explanation: int) -> Json:
    document = found.tool.document
    shown: Json = {
        "toolKey": document.tool_key,
        "toolName": document.tool_name,
        "serverName": document.server_name,
    }
    if description:
        shown["description"] = description
    shown["relevance"] = found.relevance
    if explanation and found.explanation:
        shown["explanation"] = clipped(found.explanation, explanation)
    if found.intents:
        shown["intents"] = list(found.intents)
    return shown


def _with_rest(shown: Json, found: Found, form: Form) -> Json:
    """And what a call returns, and the annotations: the hints, and the title where there is room for it."""
    returned = _texts(found, form).returns
    if returned:
        shown["returns"] = returned
    annotations = dict(found.tool.tool.get("annotations") or {})
    title = annotations.pop("title", "")
    if title and form.title:
        annotations = {"title": clipped(title, form.title), **annotations}
    if annotations:
        shown["annotations"] = annotations
    return shown


@dataclass(frozen=True, slots=True)
class _Texts:
    """A tool in one form, without its schema."""

    description: str
    signature: str
    returns: str  # empty: the tool declares no outputSchema


def _texts(found: Found, form: Form) -> _Texts:
    """Worked out once for each definition of a tool."""
    known = _known_texts.setdefault(found.tool.document, {})
    texts = known.get(form.signature)
    if texts is None:
        texts = known[form.signature] = _made_texts(found, form)
    return texts


def _made_texts(found: Found, form: Form) -> _Texts:
    tool = found.tool.tool
    output = tool.get("outputSchema")
    description = clipped(found.tool.document.description, form.description)
    if not isinstance(output, dict):
        return _Texts(description, signature(tool, form.signature), "")
    returned = returns(output, form.returns)
    in_one_line = signature(tool, form.signature - len(returned), with_result=False)
    return _Texts(description, in_one_line, returned)


# A document lives exactly as long as its tool's definition stays the same.
_known_texts: WeakKeyDictionary[ToolDocument, dict[int, _Texts]] = WeakKeyDictionary()


def _size(shown: Json) -> int:
    return len(msgspec.json.encode(shown).decode())
