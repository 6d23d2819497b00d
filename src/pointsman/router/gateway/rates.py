"""Rates of tokens, servers and tools: the one place where calls, discoveries and reads are counted and refused."""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, Literal

from msgspec import Struct

from pointsman.catalog.identities import MARK, person_of
from pointsman.catalog.rights import OWNER_ID
from pointsman.config.model import GatewayConfig, Token
from pointsman.config.sections.part import Part
from pointsman.core.errors import RateLimitedError
from pointsman.core.model import Caller, Json, ToolKey, WallClock
from pointsman.core.seams import COUNTED_ROUND
from pointsman.router.auth.claims import rule_of
from pointsman.router.state.key_values import KeyValues, StateAwayError
from pointsman.router.state.rate_counters import PREFIX, LocalCounters, SharedCounters
from pointsman.router.state.rate_windows import DAY, MINUTE, Limit, Reached

Use = Literal["calls", "discoveries", "reads"]

_USES: Final[tuple[Use, ...]] = ("calls", "discoveries", "reads")
_PERIODS: Final = (MINUTE, DAY)
MAX_ROUNDS: Final = 10  # of one call that is counted once
MAX_OPEN_ROUNDS: Final = 10_000

LimitsOf = Mapping[tuple[Use, str], tuple[Limit, ...]]
"""By what is counted, and the id of the token or server or the key of the tool."""


RightsOf = Callable[[str], Token | None]
"""Returns the rights of an identity."""


class Rules(Struct, frozen=True):
    """The limits of a configuration. What is not in it has none, so callers cannot add windows."""

    tokens: LimitsOf
    servers: LimitsOf
    tools: LimitsOf
    config: GatewayConfig
    rights_of: RightsOf

    def of(self, use: Use, token_id: str, tool: ToolKey | None) -> tuple[Limit, ...]:
        found = self._of_identity(use, token_id) if token_id[:1] == MARK else self.tokens.get((use, token_id), ())
        if tool is None:
            return found
        return found + self.servers.get((use, tool.server_id), ()) + self.tools.get((use, str(tool)), ())

    def _of_identity(self, use: Use, identity_id: str) -> tuple[Limit, ...]:
        """One person has one window for each limit, whichever access token it uses."""
        token, person = self.rights_of(identity_id), person_of(identity_id)
        if token is None:
            return ()
        rule = rule_of(identity_id)
        rates = {rule or "": (self.config.rates_of(token), "This account", f"token/{person}", "rates")}
        own = {rule: token.rates.model_fields_set} if rule is not None else None
        return _limits(rates, own, "auth.claims").get((use, rule or ""), ())

    def all(self) -> list[Limit]:
        kept = (self.tokens, self.servers, self.tools)
        return [limit for subjects in kept for limits in subjects.values() for limit in limits]


def _nobody(identity_id: str) -> Token | None:
    return None


def rules_of(config: GatewayConfig, rights_of: RightsOf = _nobody) -> Rules | None:
    """None: no rate is set, and nobody can sign in who may have one."""
    tokens = {
        token_id: (config.rates_of(token), "This token", f"token/{token_id}", "rates")
        for token_id, token in config.tokens.items()
    }
    own = {token_id: token.rates.model_fields_set for token_id, token in config.tokens.items()}
    servers = {
        server_id: (server.rates, f"Server `{server_id}`", f"server/{server_id}", f"servers.{server_id}.rates")
        for server_id, server in config.servers.items()
    }
    tools = {
        f"{server_id}:{tool}": (
            rates,
            f"Tool `{server_id}:{tool}`",
            f"tool/{server_id}/{hashlib.blake2b(tool.encode(), digest_size=16).hexdigest()}",
            f"servers.{server_id}.tool_rates.{tool}",
        )
        for server_id, server in config.servers.items()
        for tool, rates in server.tool_rates.items()
    }
    rules = Rules(_limits(tokens, own), _limits(servers), _limits(tools), config, rights_of)
    return rules if rules.all() or config.listen.public_url is not None else None


def _limits(
    subjects: Mapping[str, tuple[Part, str, str, str]],
    own: Mapping[str, AbstractSet[str]] | None = None,
    section: str = "tokens",
) -> LimitsOf:
    """`own`: the keys that a token sets itself, in its entry of `section`."""
    found: dict[tuple[Use, str], tuple[Limit, ...]] = {}
    for subject, (rates, shown, key, setting) in subjects.items():
        for use in _USES:
            names = ((f"{use}_per_{period.name}", period) for period in _PERIODS)
            limits = tuple(
                Limit(
                    f"{PREFIX}{key}/{name}",
                    most,
                    period,
                    shown,
                    use,
                    f"{section}.{subject}.rates.{name}" if own and name in own[subject] else f"{setting}.{name}",
                )
                for name, period in names
                if (most := getattr(rates, name, None)) is not None
            )
            if limits:
                found[use, subject] = limits
    return found


class Rounds:
    """The rounds of calls that were counted. A modern client repeats its call to answer a server's question: that is
    the same call, as often as the server asks, up to a bound. A word for it is used once, so that a repetition which a
    client sends again is counted. They are in memory: what another gateway or an earlier process gave out is counted.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[Caller, ToolKey, int]] = OrderedDict()

    def open(self, caller: Caller, tool: ToolKey, number: int) -> Json:
        """What a result has for the next round, after so many: a word, or nothing if that one is counted again."""
        if number >= MAX_ROUNDS:
            return {}
        word = secrets.token_urlsafe(12)
        self._open[word] = (caller, tool, number + 1)
        if len(self._open) > MAX_OPEN_ROUNDS:
            self._open.popitem(last=False)
        return {COUNTED_ROUND: word}

    def use(self, word: str | None, caller: Caller, tool: ToolKey) -> int:
        """The number of the round for which a word was given, used up by this; 0: it was given for none."""
        found = self._open.get(word) if word is not None else None
        if word is None or found is None or found[:2] != (caller, tool):
            return 0
        del self._open[word]
        return found[2]


class Rates:
    """`configure` it, then `count` each use, unless `rules` is None. `run` it as a task; `close` it in the end."""

    def __init__(self, store: KeyValues | None = None, *, shared: bool = False, clock: WallClock = time.time) -> None:
        """`store`: keeps the counts of a day; if it is `shared`, all counts, for all gateways on it."""
        self.rules: Rules | None = None
        self.rights_of: RightsOf = _nobody  # of those who have signed in
        self.rounds = Rounds()
        self._store = store
        self._shared = SharedCounters(store) if store is not None and shared else None
        self.local = LocalCounters(None if shared else store, clock)  # for all, while the shared ones are away

    async def configure(self, config: GatewayConfig) -> None:
        """Count by these limits from now on. A window that was begun goes on, also with another limit."""
        rules = rules_of(config, lambda identity_id: self.rights_of(identity_id))
        signed_in = config.listen.public_url is not None
        await self.local.keep_only(rules.all() if rules is not None else (), signed_in=signed_in)
        self.rules = rules

    async def count(self, use: Use, caller: Caller, server_id: str | None = None, tool: str = "") -> None:
        """Count one use, before anything is sent. Raises RateLimitedError; then nothing is counted.

        What the owner does by commands and on the page is not counted.
        """
        if self.rules is None or caller.token_id == OWNER_ID:
            return
        key = ToolKey(server_id, tool) if server_id is not None else None
        limits = self.rules.of(use, caller.token_id, key)
        if limits and (reached := await self._take(limits)) is not None:
            raise _error(reached)

    async def run(self) -> None:
        await self.local.run()

    async def close(self) -> None:
        if self._shared is not None:
            await self._shared.close()
        await self.local.save()

    async def _take(self, limits: tuple[Limit, ...]) -> Reached | None:
        if self._shared is None:
            return self.local.take(limits)
        try:
            reached = await self._shared.take(limits)
        except StateAwayError:
            return self.local.take(limits)
        if reached is None:
            self.local.take(limits)  # where this gateway goes on, should it be alone
        return reached


def _error(reached: Reached) -> RateLimitedError:
    limit, wait_s = reached.limit, max(1, math.ceil(reached.wait_s))
    many = f"{limit.most:,} {limit.use}" if limit.most > 1 else f"1 {_one(limit.use)}"
    return RateLimitedError(
        f"{limit.subject} is at its limit of {many} a {limit.period.name}; nothing was sent. "
        f"Try again in {_wait(wait_s)}. The operator sets `{limit.setting}`.",
        wait_s,
    )


def _wait(seconds: int) -> str:
    """In seconds, which a program can use, and for a long time also in hours and minutes."""
    hours, minutes = divmod(math.ceil(seconds / 60), 60)
    return f"{seconds} s" if seconds < 600 else f"{seconds} s ({hours} h {minutes} min)"


def _one(use: str) -> str:
    return {"calls": "call", "discoveries": "discovery", "reads": "read"}[use]
