"""The records of a call: the intent before it, the outcome after it, and the row that combines both."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args

import msgspec

Kind = Literal["discovery", "execute", "read", "change"]
Ending = Literal["ok", "error", "denied", "timeout", "cancelled", "input_required", "interrupted"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ENDINGS: tuple[Ending, ...] = get_args(Ending)

# Checked when the journal is read: SQLite's integers have 64 bits, and datetime ends with the year 9999.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]

# Structs instead of dataclasses: created and encoded in a microsecond, and type-checked when decoded.


class Intent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="t", tag="intent"):
    """Written before anything is sent to a server."""

    seq: Count
    time_ms: Milliseconds  # since the epoch
    request_id: str
    kind: Kind
    token: str | None = None  # its id, never its value
    project: str | None = None
    client: str = ""
    method: str = ""
    queries: list[str] | None = None
    tool_key: str | None = None
    server_id: str | None = None
    arguments: Any = msgspec.UNSET


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="t", tag="outcome"):
    """Written when the call ends, in whatever way."""

    seq: Count
    outcome: Ending
    code: str | None = None
    ms: float | None = None
    results: Count | None = None
    bytes: Count | None = None
    provider: str | None = None
    fallback: bool | None = None
    repeats: int | None = None  # number of refusals that this row represents
    read_as: str | None = None  # how a call that was not written exactly was read
    confirmed: str | None = None  # how a person confirmed the call, or did not


class Row(msgspec.Struct, frozen=True, rename="camel"):
    """Intent and outcome together, in the order and with the names that `pointsman audit list --json` prints."""

    seq: int
    time: str  # ISO 8601, UTC
    request_id: str
    kind: Kind
    token: str | None
    project: str | None
    client: str
    queries: list[str] | None
    tool_key: str | None
    server_id: str | None
    method: str
    outcome: Ending | None  # None: in progress
    code: str | None
    ms: float | None
    results: int | None
    bytes: int | None
    provider: str | None
    fallback: bool | None
    arguments: Any = msgspec.UNSET  # omitted unless recorded
    repeats: int | msgspec.UnsetType = msgspec.UNSET  # omitted unless the row represents several refusals
    read_as: str | msgspec.UnsetType = msgspec.UNSET  # omitted unless the call was not written exactly
    confirmed: str | msgspec.UnsetType = msgspec.UNSET  # omitted unless the call needed a person's yes
    replica: str | msgspec.UnsetType = msgspec.UNSET  # omitted unless several gateways share the rows


def row_of(intent: Intent, outcome: Outcome | None) -> Row:
    return Row(
        seq=intent.seq,
        time=iso_time(intent.time_ms),
        request_id=intent.request_id,
        kind=intent.kind,
        token=intent.token,
        project=intent.project,
        client=intent.client,
        queries=intent.queries,
        tool_key=intent.tool_key,
        server_id=intent.server_id,
        method=intent.method,
        outcome=outcome.outcome if outcome else None,
        code=outcome.code if outcome else None,
        ms=outcome.ms if outcome else None,
        results=outcome.results if outcome else None,
        bytes=outcome.bytes if outcome else None,
        provider=outcome.provider if outcome else None,
        fallback=outcome.fallback if outcome else None,
        arguments=intent.arguments,
        repeats=msgspec.UNSET if outcome is None or outcome.repeats is None else outcome.repeats,
        read_as=msgspec.UNSET if outcome is None or outcome.read_as is None else outcome.read_as,
        confirmed=msgspec.UNSET if outcome is None or outcome.confirmed is None else outcome.confirmed,
    )


def iso_time(time_ms: int) -> str:
    seconds, ms = divmod(time_ms, 1000)
    return f"{_iso_second(seconds)}.{ms:03d}Z"


@lru_cache(maxsize=16)  # rows that follow one another share their second
def _iso_second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
