"""One call behind the SDK's server: what it says goes out at once, and a modern client is asked by an answer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any

from mcp.shared.exceptions import MCPError

from pointsman.core.model import Json
from pointsman.core.seams import Client, ProtocolError
from pointsman.router.front.questions import check_may_ask
from tests.conformance.fixture.conversation import Context

SAME_BREATH_S = 0.05  # what a server asks within this time goes into one answer


class SdkCall:
    """Fits `BackChannel`. For a modern client the work lives on between rounds; nothing bounds it but the run."""

    def __init__(self, context: Context, client: Client) -> None:
        self.id = secrets.token_urlsafe(18)
        self._context: Context | None = context  # of the request that waits now
        self._client = client
        self._sending: asyncio.Task[None] | None = None
        self._questions: dict[str, tuple[str, Json, asyncio.Future[Json]]] = {}
        self._asked = asyncio.Event()
        self._work: asyncio.Task[Json]

    @property
    def waits(self) -> bool:
        """Whether the client must come back."""
        return self._context is None

    def start(self, work: Coroutine[Any, Any, Json]) -> None:
        self._work = asyncio.create_task(work)

    def resume(self, context: Context, responses: Json) -> None:
        self._context = context
        for key, response in responses.items():
            if key in self._questions:
                self._questions.pop(key)[2].set_result(response)
        if self._questions:
            self._asked.set()  # something is still without an answer

    async def next_answer(self) -> Json:
        """The result, or the questions that the work waits for. Raises ProtocolError."""
        asked = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait({self._work, asked}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the client left
            self._work.cancel()
            raise
        finally:
            asked.cancel()
        if not self._work.done():
            await asyncio.sleep(SAME_BREATH_S)
        await self._sent()
        if self._work.done():
            return self._work.result()
        self._asked.clear()
        self._context = None
        questions = {key: {"method": method, "params": params} for key, (method, params, _) in self._questions.items()}
        return {"resultType": "input_required", "inputRequests": questions, "requestState": self.id}

    def reachable(self) -> bool:
        return True

    def notify(self, method: str, params: Json) -> None:
        if self._context is not None:
            self._sending = asyncio.create_task(self._send_after(self._sending, self._context, method, params))

    async def ask(self, method: str, params: Json) -> Json:
        check_may_ask(self._client.capabilities, method, params)
        if self._client.era == "modern":
            answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
            self._questions[f"question-{len(self._questions) + 1}-{secrets.token_hex(4)}"] = (method, params, answer)
            self._asked.set()
            return await answer
        assert self._context is not None
        await self._sent()
        try:
            return dict(await self._context.session._request_outbound.send_raw_request(method, params, None))
        except MCPError as error:
            raise ProtocolError(error.error.code, error.error.message, error.error.data) from None

    async def _sent(self) -> None:
        if self._sending is not None:
            await self._sending

    async def _send_after(self, before: asyncio.Task[None] | None, context: Context, method: str, params: Json) -> None:
        if before is not None:
            await before
        await context.session._request_outbound.notify(method, params)
