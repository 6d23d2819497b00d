"""Limits concurrent requests: a share for each token, and for each server a fair queue between tokens."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable

from pointsman.config.model import Limits
from pointsman.core.errors import RateLimitedError

RETRY_S = 1  # slots come free as soon as a call ends


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
    """Counts the requests under way of each token. A call that waits for a person's answer is not under way."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.total = 0
        self._under_way: dict[str, int] = {}

    @property
    def full(self) -> bool:
        """Whether the daemon as a whole takes no more."""
        return self.total >= self.limits.calls

    def enter(self, token_id: str) -> None:
        """Count one request; `leave` it in the end. Raises RateLimitedError."""
        count = self._under_way.get(token_id, 0)
        if count >= self.limits.token_calls:
            raise RateLimitedError(
                f"This token has {count} requests under way, which is its share. "
                "Wait until some of them are answered, then repeat the call; the operator sets `limits.token_calls`.",
                RETRY_S,
            )
        self._under_way[token_id] = count + 1
        self.total += 1

    def enter_anyway(self, token_id: str) -> None:
        """For what has to be done even over the share."""
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
    """The slots of one server. Tokens that wait for one take turns, however much each has waiting."""

    def __init__(self, server_id: str, tokens: TokenShares | None = None) -> None:
        """`tokens`: where each request is counted already; its limits hold here as well."""
        self._server_id = server_id
        self._shares = tokens or TokenShares(Limits())
        self._tokens = tokens
        self.running = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # the next turn first

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def take_now(self) -> bool:
        """A slot without waiting, where there is one; `give_back` it in the end."""
        if self._waiting or self.running >= self._shares.limits.server_calls:
            return False
        self.running += 1
        return True

    async def take(self, token_id: str) -> None:
        """A slot when it is this token's turn; `give_back` it in the end. Raises RateLimitedError."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(token_id, deque()).append(turn)
        limits = self._shares.limits
        try:
            await wait_for_slot(
                turn, limits.queue_s, withdraw=lambda: self._withdraw(token_id, turn), give_back=self.give_back
            )
        except TimeoutError:
            raise RateLimitedError(
                f"Server `{self._server_id}` has {self.running} calls under way, and no slot came free within "
                f"{limits.queue_s:g} s, so the call was not made. Repeat it later; "
                "the operator sets `limits.server_calls`.",
                RETRY_S,
            ) from None

    def give_back(self) -> None:
        self.running -= 1
        if self._waiting:
            self.hand_out()

    def pause(self, token_id: str) -> None:
        """The call asks a person, which may take minutes: others have its slot and its share meanwhile."""
        self.give_back()
        if self._tokens is not None:
            self._tokens.leave(token_id)

    def resume(self, token_id: str) -> None:
        """The call goes on. It does not wait: its server is in the middle of it."""
        self.running += 1
        if self._tokens is not None:
            self._tokens.enter_anyway(token_id)

    def hand_out(self) -> None:
        """Give free slots to those whose turn it is."""
        while self._waiting and self.running < self._shares.limits.server_calls:
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
