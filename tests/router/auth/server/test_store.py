"""Codes, grants and tokens: each secret works once, and two gateways with the same store agree."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pointsman.router.auth.server.store import (
    MAX_REFRESHES,
    REFRESH_S,
    Code,
    Grant,
    GrantStore,
    Issued,
    Refusal,
    Registration,
)
from pointsman.router.state.sqlite_values import SqliteKeyValues
from tests.router.conftest import Open

CHALLENGE = "c" * 43


def _grant(grant_id: str = "g", **more: Any) -> Grant:
    return Grant(grant_id, "client", "Client", "app.example", "https://m/mcp", ("",), ("*",), ("read",), 1.0, **more)


def _code(grant: Grant | None = None) -> Code:
    return Code(grant or _grant(), "https://app.example/cb", CHALLENGE)


def _exchange(store: GrantStore, code: str, **changed: Any) -> Issued | Refusal:
    given = {
        "client_id": "client",
        "redirect_uri": "https://app.example/cb",
        "verified": CHALLENGE.encode(),
        "resource": "https://m/mcp",
        **changed,
    }
    return store.exchange(code, **given)


def _issued(outcome: Issued | Refusal) -> Issued:
    assert isinstance(outcome, Issued), outcome
    return outcome


def _why(outcome: Issued | Refusal) -> str:
    assert isinstance(outcome, Refusal), outcome
    return outcome.why


def test_a_code_works_once_wherever_it_is_used(open_values: Open) -> None:
    one, other = GrantStore(open_values()), GrantStore(open_values())
    code = one.add_code(_code())
    first = _issued(_exchange(one, code))
    again = _exchange(other, code)
    assert _why(again) == "reused"
    assert isinstance(again, Refusal)
    assert again.grant is not None
    assert again.grant.id == "g"
    found = other.grant_of_access(first.access)
    assert found is not None
    assert found[0] == first.grant


def test_two_gateways_with_the_same_code_issue_tokens_once(open_values: Open) -> None:
    stores = [GrantStore(open_values()) for _ in range(2)]
    for store in stores:
        store.epoch()  # connected
    code = stores[0].add_code(_code())
    outcomes = _at_once(*(lambda store=store: _exchange(store, code) for store in stores))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Issued", "Refusal"]


def test_two_gateways_with_the_same_refresh_token_issue_tokens_once(open_values: Open) -> None:
    stores = [GrantStore(open_values()) for _ in range(2)]
    secret = _issued(_exchange(stores[0], stores[0].add_code(_code()))).refresh
    outcomes = _at_once(*(lambda store=store: store.refresh(secret, "client", None) for store in stores))
    assert sorted(_why(outcome) if isinstance(outcome, Refusal) else "issued" for outcome in outcomes) == [
        "issued",
        "reused",
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"client_id": "other"},
        {"redirect_uri": "https://app.example/other"},
        {"verified": b"d" * 43},
        {"resource": "https://m/projects/attic/mcp"},
    ],
)
def test_a_code_that_does_not_fit_ends(tmp_path: Path, changed: dict[str, Any]) -> None:
    store = GrantStore(SqliteKeyValues(tmp_path))
    code = store.add_code(_code())
    assert _why(_exchange(store, code, **changed)) == "mismatch"
    assert _why(_exchange(store, code)) == "reused"
    assert store.grants() == []


def test_a_refresh_token_is_replaced_and_the_old_one_is_known_as_reused(tmp_path: Path) -> None:
    store = GrantStore(SqliteKeyValues(tmp_path))
    first = _issued(_exchange(store, store.add_code(_code())))
    assert _why(store.refresh(first.refresh, "other", None)) == "mismatch"
    assert _why(store.refresh(first.refresh, "client", "https://m/sse")) == "mismatch"
    second = _issued(store.refresh(first.refresh, "client", "https://m/mcp"))
    assert len({first.access, first.refresh, second.access, second.refresh}) == 4
    assert _why(store.refresh(first.refresh, "client", None)) == "reused"
    assert store.revoke("g")
    assert not store.revoke("g")
    assert _why(store.refresh(second.refresh, "client", None)) == "unknown"
    assert store.grant_of_access(second.access) is None


def test_a_grant_ends_at_its_time_and_when_it_is_not_used(tmp_path: Path) -> None:
    now = [1000.0]
    store = GrantStore(SqliteKeyValues(tmp_path, lambda: now[0]))
    short = _issued(_exchange(store, store.add_code(_code(_grant("short", expires=1600.0)))))
    assert short.expires_s == 600.0
    idle = _issued(_exchange(store, store.add_code(_code(_grant("idle")))))
    now[0] = 1600.0
    assert store.grant_of_access(short.access) is None
    assert _why(store.refresh(short.refresh, "client", None)) == "unknown"
    now[0] += REFRESH_S
    assert _why(store.refresh(idle.refresh, "client", None)) == "unknown"
    assert store.grants() == []


def test_an_old_code_is_unknown(tmp_path: Path) -> None:
    now = [1000.0]
    store = GrantStore(SqliteKeyValues(tmp_path, lambda: now[0]))
    code = store.add_code(_code())
    now[0] += 61
    assert _why(_exchange(store, code)) == "unknown"


def test_refreshes_of_a_grant_have_a_rate(tmp_path: Path) -> None:
    """Each leaves two rows for a while."""
    now = [10_000.0]
    store = GrantStore(SqliteKeyValues(tmp_path, lambda: now[0]))
    secret = _issued(_exchange(store, store.add_code(_code()))).refresh
    for _ in range(MAX_REFRESHES):
        secret = _issued(store.refresh(secret, "client", None)).refresh
    assert _why(store.refresh(secret, "client", None)) == "slow_down"
    now[0] += 3600
    _issued(store.refresh(secret, "client", None))


def test_nothing_is_stored_in_clear(tmp_path: Path) -> None:
    store = GrantStore(SqliteKeyValues(tmp_path))
    code = store.add_code(_code())
    issued = _issued(_exchange(store, code))
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for secret in (code, issued.access, issued.refresh):
        assert secret.encode() not in stored
        assert secret.split("_", 2)[2].encode() not in stored


def test_a_client_is_kept(tmp_path: Path) -> None:
    store = GrantStore(SqliteKeyValues(tmp_path))
    kept = Registration("Client", ("https://app.example/cb",), 1.0)
    assert store.client("registered.x") is None
    store.keep_client("registered.x", kept)
    assert store.client("registered.x") == kept


def _at_once(*functions: Callable[[], Issued | Refusal]) -> list[Issued | Refusal]:
    """Run them in threads that begin together."""
    barrier = threading.Barrier(len(functions))
    outcomes: list[Issued | Refusal] = []

    def run(function: Callable[[], Issued | Refusal]) -> None:
        barrier.wait(10)
        outcomes.append(function())

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes
