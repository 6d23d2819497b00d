"""The search provider that lets a language model select from a shortlist of the local search."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from msgspec.structs import replace

from pointsman.providers.base import SearchHit, SearchHits, SearchProvider, SearchRequest
from pointsman.providers.llm import question as llm_question
from pointsman.providers.llm import selection as llm_selection
from pointsman.providers.llm.chat import Chat, ChatError, Reason

logger = logging.getLogger(__name__)

NAME = "llm"
SHORTLIST = 20
REST_S = 15.0  # without calls to an endpoint that did not answer, so that later searches do not wait for it


class Selected(SearchHits):
    """A ranking with the provider that made it."""

    def __init__(self, hits: list[SearchHit], local: list[SearchHit], provider: str) -> None:
        super().__init__(hits, local.best_by_query if isinstance(local, SearchHits) else ())
        self.provider = provider
        self.failure: Reason | None = None  # why the model's selection was not used
        self.invented = 0  # tools that the model named and that were not in the shortlist


class _NoSelectionError(ChatError):
    """The model answered in JSON, but not with a valid selection."""

    def __init__(self, error: llm_selection.InvalidSelectionError) -> None:
        super().__init__("malformed", str(error))
        self.invented = error.invented


class LlmSearchProvider:
    """Always answers if `local` does: if the model fails, in the order of `local`."""

    def __init__(self, local: SearchProvider, chat: Chat, clock: Callable[[], float] = time.monotonic) -> None:
        self._local = local
        self._chat = chat
        self._clock = clock
        self._rests_until = 0.0
        self._logged: Reason | None = None  # the last logged reason, which is not logged again

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
        moved = llm_selection.apply(hits, min(len(hits), SHORTLIST), selection)
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
            if error.reason != self._logged:
                logger.warning("language model failed (%s), using the local order: %s", error.reason, error)
            self._logged = error.reason
            if error.reason in ("timeout", "unreachable"):
                self._rests_until = self._clock() + REST_S
            raise
        self._logged = None
        return selection


def _read(answer: object, shown: int) -> llm_selection.Selection:
    try:
        return llm_selection.read(answer, shown)
    except llm_selection.InvalidSelectionError as error:
        raise _NoSelectionError(error) from None
