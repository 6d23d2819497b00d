"""Selection by a language model: the local search makes a shortlist, and a model says what it thinks of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from pointsman.providers.base import SearchHit, SearchHits, SearchProvider, SearchRequest
from pointsman.providers.llm import question as llm_question
from pointsman.providers.llm import selection as llm_selection
from pointsman.providers.llm.chat import Chat, ChatError, Reason

logger = logging.getLogger(__name__)

NAME = "llm"
SHORTLIST = 20
REST_S = 15.0  # for an endpoint that gave no sign of life: until then nobody else waits for it


class Selected(SearchHits):
    """A ranking that also tells who made it."""

    def __init__(self, hits: list[SearchHit], local: list[SearchHit], provider: str) -> None:
        super().__init__(hits, local.best_by_query if isinstance(local, SearchHits) else ())
        self.provider = provider
        self.failure: Reason | None = None  # why the model had no say
        self.invented = 0  # tools that the model named and that were not there


class _NoSelectionError(ChatError):
    """The model answered in JSON, and it is of no use."""

    def __init__(self, error: llm_selection.InvalidSelectionError) -> None:
        super().__init__("malformed", str(error))
        self.invented = error.invented


class LlmSearchProvider:
    """Always answers if `local` does: where the model does not, with the order of `local`."""

    def __init__(self, local: SearchProvider, chat: Chat, clock: Callable[[], float] = time.monotonic) -> None:
        self._local = local
        self._chat = chat
        self._clock = clock
        self._rests_until = 0.0
        self._told: Reason | None = None  # in the log; the same again would only fill it

    @property
    def name(self) -> str:
        return NAME

    async def search(self, request: SearchRequest) -> Selected:
        found = await self._local.search(replace(request, max_results=max(SHORTLIST, request.max_results)))
        if not found:
            return Selected([], found, self._local.name)
        hits = sorted(found, key=lambda hit: -hit.relevance)
        try:
            selection = await self._ask(request, hits[:SHORTLIST])
        except ChatError as error:
            local = await self._local.search(request)
            plain = Selected(local, local, self._local.name)
            plain.failure = error.reason
            plain.invented = error.invented if isinstance(error, _NoSelectionError) else 0
            return plain
        moved = llm_selection.applied(hits, min(len(hits), SHORTLIST), selection)
        selected = Selected(moved[: request.max_results], found, NAME)
        selected.invented = selection.invented
        return selected

    async def _ask(self, request: SearchRequest, hits: list[SearchHit]) -> llm_selection.Selection:
        """Raises ChatError."""
        if self._clock() < self._rests_until:
            raise ChatError("resting", "the endpoint did not answer a moment ago")
        by_key = {tool.tool_key: tool for tool in request.tools}
        question = llm_question.messages(request, [by_key[hit.tool_key] for hit in hits])
        try:
            selection = _read(await self._chat.ask(question, llm_question.ANSWER_SCHEMA), len(hits))
        except ChatError as error:
            if error.reason != self._told:
                logger.warning("the language model is of no help (%s), the local order stands: %s", error.reason, error)
            self._told = error.reason
            if error.reason in ("timeout", "unreachable"):
                self._rests_until = self._clock() + REST_S
            raise
        self._told = None
        return selection


def _read(answer: object, shown: int) -> llm_selection.Selection:
    try:
        return llm_selection.read(answer, shown)
    except llm_selection.InvalidSelectionError as error:
        raise _NoSelectionError(error) from None
