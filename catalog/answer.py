"""What `tool_discovery` shows of its results within a budget of tokens: the best in full, the others in short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec

from pointsman.catalog.clipping import clipped
from pointsman.catalog.model import Json
from pointsman.catalog.notices import DOUBTFUL
from pointsman.catalog.results import Found, SearchOutcome
from pointsman.catalog.signature import signature
from pointsman.providers.base import ToolDocument

# In characters of the answer's text, about four to a token.
BUDGET = 300
BUDGET_EACH = 220  # for every result
FULL_EXPLANATION = 60
NEAR_THE_BEST = 0.8  # a result this close to the best in relevance may be shown in full as well
MAX_SCHEMA = 8_000  # a longer one is not shown, however good the tool
TOO_LONG = "The inputSchema is too long to show here; tool_execute shows it if the arguments do not fit."


@dataclass(frozen=True, slots=True)
class Form:
    """How much of a result is shown when its schema is not."""

    description: int  # characters
    signature: int
    explanation: int


LEAN = Form(description=44, signature=64, explanation=0)
SHORT = Form(description=140, signature=140, explanation=60)
LONG = Form(description=1_000, signature=1_000, explanation=60)


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
        page.put(0, _in_full(results[0]))
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
    # The outputSchema comes last: it tells no more than what the answer of the call will show.
    for index in sorted(full):
        if isinstance(results[index].tool.tool.get("outputSchema"), dict):
            page.grow(index, _with_both_schemas(results[index]))
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
    description, in_one_line = _texts(found, form)
    shown = _head(found, description, form.explanation)
    shown["signature"] = in_one_line
    return _with_annotations(shown, found)


def _in_full(found: Found) -> Json:
    """With its schema, unless that would drown everything else."""
    schema = found.tool.tool.get("inputSchema")
    if isinstance(schema, dict) and _size(schema) > MAX_SCHEMA:
        return {**_without_schema(found, LONG), "hint": TOO_LONG}
    return _with_schema(found)


def _with_schema(found: Found) -> Json:
    shown = _head(found, found.tool.document.description, FULL_EXPLANATION)
    if isinstance(found.tool.tool.get("inputSchema"), dict):
        shown["inputSchema"] = found.tool.tool["inputSchema"]
    return _with_annotations(shown, found)


def _with_both_schemas(found: Found) -> Json:
    return {**_in_full(found), "outputSchema": found.tool.tool["outputSchema"]}


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


def _with_annotations(shown: Json, found: Found) -> Json:
    annotations = found.tool.tool.get("annotations")
    if isinstance(annotations, dict):
        shown["annotations"] = annotations
    return shown


def _texts(found: Found, form: Form) -> tuple[str, str]:
    """The description and the signature, worked out once for each definition of a tool."""
    document = found.tool.document
    known = _known_texts.setdefault(document, {})
    texts = known.get(form.signature)
    if texts is None:
        texts = clipped(document.description, form.description), signature(found.tool.tool, form.signature)
        known[form.signature] = texts
    return texts


# A document lives exactly as long as its tool's definition stays the same.
_known_texts: WeakKeyDictionary[ToolDocument, dict[int, tuple[str, str]]] = WeakKeyDictionary()


def _size(shown: Json) -> int:
    return len(msgspec.json.encode(shown).decode())
