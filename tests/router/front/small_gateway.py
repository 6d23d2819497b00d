"""A small real gateway for the front's tests: a few tools, two tokens, and a memory of what reached it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from msgspec import Raw

from pointsman.core.errors import ForbiddenError, UnauthorizedError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    BackChannel,
    CannotAskError,
    Change,
    ClientGoneError,
    Era,
    FrontRequest,
    ProtocolError,
)
from pointsman.core.wire import encode
from pointsman.router.front.subscriptions import NoClient

TOKENS = {
    "secret-a": ("a", frozenset({None, "research"})),
    "secret-b": ("b", frozenset({None, "research"})),
    "secret-r": ("r", frozenset({"research"})),
}
SECRET_PATH = "/secret/path/of/this/machine"
FORM: Json = {"mode": "form", "message": "How many?", "requestedSchema": {"type": "object", "properties": {}}}
TOOLS: list[Json] = [
    {"name": name, "description": f"{name}s", "inputSchema": {"type": "object"}}
    for name in ("echo", "slow", "ask", "ask_all", "rounds", "tell", "fail", "huge", "odd")
]


@dataclass(frozen=True)
class RefusedError:
    code: str
    token: str | None
    method: str | None
    params: Json
    client: str


def text(words: str) -> Json:
    return {"content": [{"type": "text", "text": words}], "isError": False}


@dataclass
class SmallGateway:
    """Fits `core.seams.Gateway`."""

    requests: list[FrontRequest] = field(default_factory=list)
    refusals: list[RefusedError] = field(default_factory=list)
    entered: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))  # one for each slow call
    leave: asyncio.Event = field(default_factory=asyncio.Event)  # lets slow calls end
    cancelled: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))  # one for each cancelled call
    finished: int = 0
    revoked: set[str] = field(default_factory=set)
    listeners: list[asyncio.Queue[Change]] = field(default_factory=list)
    listening: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    schemas: dict[str, Json] = field(default_factory=dict)
    subscribed: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    silent: bool = False  # nothing ever changes
    broken: bool = False
    broken_changes: bool = False
    shared: Json = field(default_factory=lambda: {"content": [], "structuredContent": [1, 2], "ttlMs": 1})

    def identify(self, token: str | None, project: str | None) -> Caller:
        if self.broken:
            raise RuntimeError(SECRET_PATH)
        if token not in TOKENS or token in self.revoked:
            raise UnauthorizedError("No such token. Create one with `pointsman token create NAME`.")
        token_id, projects = TOKENS[token]
        if (project or None) not in projects:
            raise ForbiddenError("The token does not list this project.")
        return Caller(token_id, project or None)

    def still_valid(self, caller: Caller) -> bool:
        return caller.token_id not in {TOKENS[secret][0] for secret in self.revoked}

    def tool_schema(self, caller: Caller, name: str) -> Json | None:
        return self.schemas.get(name)

    def refused(
        self,
        code: str,
        token: str | None,
        method: str | None,
        params: Json,
        client: str,
        person: str | None = None,
    ) -> None:
        if token == "break the audit":
            raise RuntimeError(SECRET_PATH)
        self.refusals.append(RefusedError(code, token, method, params, client))

    def capabilities(self, caller: Caller, era: Era) -> Json:
        return {"tools": {"listChanged": True}}

    async def changes(self, caller: Caller) -> AsyncIterator[Change]:
        if self.broken_changes:
            raise RuntimeError(SECRET_PATH)
        queue: asyncio.Queue[Change] = asyncio.Queue()
        self.listeners.append(queue)
        self.listening.release()
        try:
            while not self.silent:
                yield await queue.get()
        finally:
            self.listeners.remove(queue)

    def publish(self, change: Change) -> None:
        for queue in self.listeners:
            queue.put_nowait(change)

    async def handle(self, request: FrontRequest, back: BackChannel) -> Json:
        self.requests.append(request)
        if request.method == "tools/list":
            return {"tools": TOOLS}
        if request.method == "resources/subscribe":
            return await self._subscribe(request.params["uri"])
        if request.method == "resources/unsubscribe":
            self.subscribed.remove(request.params["uri"])
            return {}
        if request.method != "tools/call":
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found")
        tool = self._tools().get(request.params["name"])
        if tool is None:
            raise ProtocolError(INVALID_PARAMS, "Unknown tool")
        try:
            if tool == self._rounds:
                return await self._rounds(request.params, back)
            return await tool(request.params.get("arguments") or {}, back)
        except asyncio.CancelledError:
            self.cancelled.release()
            raise

    async def _subscribe(self, uri: str) -> Json:
        """Resources are called `x://...`; those below `x://slow/` take their time."""
        if not uri.startswith("x://"):
            raise ProtocolError(INVALID_PARAMS, "No such resource")
        if uri.startswith("x://slow/"):
            await self._slow({}, NoClient())
        self.subscribed.append(uri)
        return {}

    def _tools(self) -> dict[str, Callable[[Json, BackChannel], Awaitable[Json]]]:
        return {
            "echo": self._echo,
            "slow": self._slow,
            "ask": self._ask,
            "ask_all": self._ask_all,
            "rounds": self._rounds,
            "stubborn": self._stubborn,
            "impatient": self._impatient,
            "tell": self._tell,
            "fail": self._fail,
            "huge": self._huge,
            "odd": self._odd,
        }

    async def _echo(self, arguments: Json, back: BackChannel) -> Json:
        return text(str(arguments.get("text", "")))

    async def _slow(self, arguments: Json, back: BackChannel) -> Json:
        self.entered.release()
        await self.leave.wait()
        self.finished += 1
        return text(str(arguments.get("text", "")))

    async def _ask(self, arguments: Json, back: BackChannel) -> Json:
        try:
            answer = await back.ask(arguments.get("method", "elicitation/create"), arguments.get("params", FORM))
        except (CannotAskError, ClientGoneError) as error:
            self.finished += 1
            return text(type(error).__name__)
        except ProtocolError as error:
            return text(f"{error.code} {error.message}")
        return text(str(answer.get("action")))

    async def _ask_all(self, arguments: Json, back: BackChannel) -> Json:
        """`together` questions at once, `times` over, each from a task of its own, as a server's questions come.

        With `turns` each question comes so many turns of the loop after the one before it.
        """

        async def ask(number: int, part: int) -> Json:
            for _ in range(part * arguments.get("turns", 0)):
                await asyncio.sleep(0)
            return await back.ask("elicitation/create", {**FORM, "message": f"{number}.{part}"})

        answers: list[str] = []
        for number in range(arguments.get("times", 1)):
            back.notify("notifications/progress", {"progressToken": "first", "progress": number})
            together = [asyncio.ensure_future(ask(number, part)) for part in range(arguments.get("together", 1))]
            answers += [str(answer["content"]["answer"]) for answer in await asyncio.gather(*together)]
        if arguments.get("slowly"):
            await self._slow(arguments, back)
        return text(" ".join(answers))

    async def _stubborn(self, arguments: Json, back: BackChannel) -> Json:
        """Asks on when it is cancelled, and from a task that is not cancelled with it."""
        beside = asyncio.ensure_future(self._ask(arguments, back))
        try:
            await back.ask("elicitation/create", FORM)
        except asyncio.CancelledError:
            self.words = [
                (await beside)["content"][0]["text"],
                (await self._ask(arguments, back))["content"][0]["text"],
            ]
            raise
        return text("not cancelled")

    async def _impatient(self, arguments: Json, back: BackChannel) -> Json:
        asking = asyncio.ensure_future(back.ask("elicitation/create", FORM))
        await self._slow({}, back)
        asking.cancel()
        await asyncio.wait((asking,))
        return text("went on without")

    async def _rounds(self, params: Json, back: BackChannel) -> Json:
        """As a modern server: nothing is kept here between the rounds."""
        state, responses = params.get("requestState"), params.get("inputResponses") or {}
        if "name" not in responses:
            asked = {"name": {"method": "elicitation/create", "params": FORM}}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": "server's own: 1"}
        return text(f"{state} {responses['name']['content']['answer']}")

    async def _tell(self, arguments: Json, back: BackChannel) -> Json:
        for number in range(arguments.get("times", 2)):
            data = "x" * arguments.get("size", 1)
            back.notify("notifications/message", {"level": "info", "data": f"{number} {data}"})
            if arguments.get("paced"):
                await asyncio.sleep(0)  # so that it can be written
        if arguments.get("slowly"):
            return await self._slow(arguments, back)
        return text("told")

    async def _fail(self, arguments: Json, back: BackChannel) -> Json:
        raise RuntimeError(SECRET_PATH)

    async def _huge(self, arguments: Json, back: BackChannel) -> Json:
        if arguments.get("told"):
            back.notify("notifications/message", {"level": "info", "data": "soon"})
        result = text("h" * int(arguments["bytes"]))
        # Content that was large in the server's answer is not decoded.
        return {**result, "content": Raw(encode(result["content"]))} if arguments.get("undecoded") else result

    async def _odd(self, arguments: Json, back: BackChannel) -> Json:
        match arguments.get("kind"):
            case "shared":
                return self.shared
            case "unencodable":
                return {"content": [object()]}
            case "meta":
                return {"content": [], "_meta": {"vendor/x": 1}}
            case _:
                return {"content": [], "resultType": "complete", "cacheScope": "public"}
