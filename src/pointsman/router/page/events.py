"""Server-sent events: tells browsers which parts of their screen have changed. They then fetch these parts.

One task looks at all topics that somebody listens to, so further browsers cost nothing. A topic is a name of
`Screen.topics`, or the name and an argument: `servers`, `log:weather`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

from starlette.responses import PlainTextResponse, Response, StreamingResponse

from pointsman.router.owner.parts import Parts
from pointsman.router.page.registry import Topic

MAX_STREAMS = 16
MAX_TOPICS = 8  # of one stream
LOOK_S = 1.0
HEARTBEAT_S = 15.0
_NEW = object()

logger = logging.getLogger(__name__)


class Streams:
    """`end` them all before the daemon stops: a stream would keep its connection open."""

    def __init__(self, parts: Parts, topics: Mapping[str, Topic]) -> None:
        self._parts = parts
        self._topics = topics
        self._open: set[_Stream] = set()
        self._looking: asyncio.Task[None] | None = None
        self._ended = False

    def __len__(self) -> int:
        return len(self._open)

    def response(self, names: Iterable[str], valid: Callable[[], bool]) -> Response:
        """`valid`: whether the browser is still signed in."""
        wanted = [name for name in names if name.partition(":")[0] in self._topics][:MAX_TOPICS]
        if self._ended or len(self._open) >= MAX_STREAMS:
            # 204 tells a browser not to connect again; the page then stays as it is until it is loaded anew.
            return Response(status_code=204)
        if not wanted:
            return PlainTextResponse("There is no such topic.", 400)
        return StreamingResponse(self._events(_Stream(wanted, valid)), media_type="text/event-stream")

    def end(self) -> None:
        self._ended = True
        for stream in self._open:
            stream.wake.set()

    async def _events(self, stream: _Stream) -> AsyncGenerator[bytes]:
        self._open.add(stream)  # not earlier: of a browser that leaves at once, this is never run
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            yield b"retry: 3000\n\n"
            while not self._ended and stream.valid():
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await stream.wake.wait()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                stream.wake.clear()
                changed, stream.changed = stream.changed, {}
                for name in changed:
                    yield f"event: change\ndata: {name}\n\n".encode()
        finally:
            self._open.discard(stream)
            if not self._open and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look(self) -> None:
        """Notice changes; a topic that nobody listened to before is new, and has not changed."""
        known: dict[str, object] = {}
        while True:
            wanted = {name for stream in self._open for name in stream.topics}
            for name in wanted:
                value = await self._value(name)
                if known.get(name, _NEW) not in (_NEW, value):
                    self._changed(name)
                known[name] = value
            known = {name: value for name, value in known.items() if name in wanted}
            await asyncio.sleep(LOOK_S)

    async def _value(self, name: str) -> object:
        topic, _, argument = name.partition(":")
        try:
            return await self._topics[topic](self._parts, argument)
        except Exception:  # one topic must not end the events of all others
            logger.exception("the page cannot tell whether `%s` has changed", topic)
            return None

    def _changed(self, name: str) -> None:
        for stream in self._open:
            if name in stream.topics:
                stream.changed[name] = None
                stream.wake.set()


class _Stream:
    def __init__(self, topics: list[str], valid: Callable[[], bool]) -> None:
        self.valid = valid
        self.topics = frozenset(name for name in topics if "\n" not in name and "\r" not in name)
        self.changed: dict[str, None] = {}  # in order, each once
        self.wake = asyncio.Event()
