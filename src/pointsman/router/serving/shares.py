"""Limits concurrent requests: a share per token, and a fair queue between tokens per server."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable

from pointsman.config.model import Limits
from pointsman.core.errors import RateLimitedError

RETRY_S = 1  # slots become free as soon as a call ends


async def wait_for_slot(
    turn: asyncio.Future[None], timeout_s: float, *, withdraw: Callable[[], None], give_back: Callable[[], None]
) -> None:
    """Wait until `turn` is set, which hands over a slot.

    A wait that ends otherwise withdraws from the queue, or gives back a slot that arrived at the same moment. Raises
    TimeoutError.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await turn
    except BaseException:
        if turn.done() and not turn.cancelled():
            give_back()
        else:
            withdraw()
        raise


class TokenShares:
    """Counts the requests in progress of each token, without calls that wait for a user's answer."""

    def __init__(self, limits: Limits) -> None:
        self.total = 0
        self._under_way: dict[str, int] = {}
        self.reload(limits)

    def reload(self, limits: Limits) -> None:
        """Set the limits, which each call compares."""
        self.limits = limits
        self.calls, self.token_calls, self.server_calls = limits.calls, limits.token_calls, limits.server_calls

    def is_full(self) -> bool:
        """Whether the daemon as a whole is at its limit."""
        return self.total >= self.calls

    def enter(self, token_id: str) -> None:
        """Count one request; `leave` it in the end. Raises RateLimitedError."""
        count = self._under_way.get(token_id, 0)
        if count >= self.token_calls:
            raise RateLimitedError(
                f"This token has {count} requests in progress, which is its share. "
                "Wait for some of them to end, then retry; the operator sets `limits.token_calls`.",
                RETRY_S,
            )
        self._under_way[token_id] = count + 1
        self.total += 1

    def enter_anyway(self, token_id: str) -> None:
        """Count one request that must run even over the share."""
        self._under_way[token_id] = self._under_way.get(token_id, 0) + 1
        self.total += 1

    def leave(self, token_id: str) -> None:
        count = self._under_way[token_id] - 1
        if count:
            self._under_way[token_id] = count
        else:
            del self._under_way[token_id]
        self.total -= 1


class FairQueue:
    """The slots of one server. Waiting tokens take turns (round-robin), however many calls each has waiting."""

    def __init__(self, server_id: str, tokens: TokenShares | None = None) -> None:
        """`tokens`: counts each request already; its limits apply here, too."""
        self._server_id = server_id
        self._shares = tokens or TokenShares(Limits())
        self._tokens = tokens
        self.running = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # the next turn first

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def take_now(self) -> bool:
        """Take a free slot without waiting, if there is one; `give_back` it in the end."""
        if self._waiting or self.running >= self._shares.server_calls:
            return False
        self.running += 1
        return True

    async def take(self, token_id: str) -> None:
        """Take a slot when it is this token's turn; `give_back` it in the end. Raises RateLimitedError."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(token_id, deque()).append(turn)
        limits = self._shares.limits
        try:
            await wait_for_slot(
                turn, limits.queue_s, withdraw=lambda: self._withdraw(token_id, turn), give_back=self.give_back
            )
        except TimeoutError:
            raise RateLimitedError(
                f"Server `{self._server_id}` has {self.running} calls in progress, and no slot became free within "
                f"{limits.queue_s:g} s, so the call was not made. Retry later; "
                "the operator sets `limits.server_calls`.",
                RETRY_S,
            ) from None

    def give_back(self) -> None:
        self.running -= 1
        if self._waiting:
            self.hand_out()

    def pause(self, token_id: str) -> None:
        """Release slot and share while the call waits for a user's answer, which may take minutes."""
        self.give_back()
        if self._tokens is not None:
            self._tokens.leave(token_id)

    def resume(self, token_id: str) -> None:
        """Continue a paused call without waiting for a slot: its server is already executing it."""
        self.running += 1
        if self._tokens is not None:
            self._tokens.enter_anyway(token_id)

    def hand_out(self) -> None:
        """Give free slots to the tokens whose turn it is."""
        while self._waiting and self.running < self._shares.server_calls:
            token_id, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[token_id] = turns  # at the end: the others come first
            if not turn.done():
                self.running += 1
                turn.set_result(None)

    def _withdraw(self, token_id: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(token_id)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[token_id]
