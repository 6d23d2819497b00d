"""Approvals in the store, the same in both engines: used once, by whoever comes first, and for the very call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from pointsman.router.gateway.confirmation.approvals import (
    LEASE_S,
    MOST_DEFERRED,
    Approvals,
    Call,
    Looked,
    Pending,
    digest_of,
    new_id,
)
from pointsman.router.state.key_values import KeyValues, StateAwayError
from pointsman.router.state.sqlite_values import SqliteKeyValues

Open = Callable[[], KeyValues]
CALL = Call("t", None, "s:wipe", "d1", digest_of("s:wipe", {"path": "/a"}))
SECRET = "0123"


def pending(call: Call = CALL, *, asked: bool = False) -> Pending:
    return Pending(new_id(), call, asked, "client", "s", "wipes", "{}", at=1.0, until=2.0)


OTHERS = [
    replace(CALL, token="u"),
    replace(CALL, project="p"),
    replace(CALL, tool_key="s:other"),
    replace(CALL, definition="d2"),
    replace(CALL, digest=digest_of("s:wipe", {"path": "/b"})),
]


def test_an_approved_call_runs_once_and_no_other_does(open_values: Open) -> None:
    store = Approvals(open_values())
    listed = store.defer(pending(), 60)
    assert listed is not None
    assert store.look(CALL, SECRET).answer is None
    assert store.answer(listed, "once", "cli", 60)
    assert not store.answer(listed, "refuse", "page", 60)
    holds = store.answered(listed)
    assert holds is not None
    assert (holds.answer, holds.by, holds.answered_at > 0) == ("once", "cli", True)
    assert all(store.look(other, SECRET).answer is None for other in OTHERS)
    found: list[str | None] = []
    threads = [threading.Thread(target=lambda: found.append(store.look(CALL, SECRET).answer)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found, key=str) == [*[None] * 7, "once"]


def test_a_repeated_call_is_listed_once_and_one_token_has_a_bound(open_values: Open) -> None:
    store = Approvals(open_values())
    for number in range(MOST_DEFERRED):
        assert store.defer(pending(replace(CALL, digest=str(number))), 60) is not None
    assert store.defer(pending(replace(CALL, digest="0")), 60) is not None
    assert store.defer(pending(replace(CALL, digest="more")), 60) is None
    assert store.defer(pending(replace(CALL, token="u", digest="more")), 60) is not None
    assert len(store.pending()) == MOST_DEFERRED + 1


def test_a_refusal_of_a_very_call_is_stronger_than_always(open_values: Open) -> None:
    store = Approvals(open_values())
    listed = store.defer(pending(), 60)
    assert listed is not None
    store.always(replace(CALL, digest="another"), SECRET, "cli")
    assert store.look(CALL, SECRET).always
    assert store.refusal(CALL) is None
    assert store.answer(listed, "refuse", "cli", 60)
    found = store.look(CALL, SECRET)
    assert (found.always, found.answer, found.by) == (False, "refuse", "cli")
    assert store.refusal(CALL) is not None
    assert all(store.refusal(other) is None for other in OTHERS)
    assert store.look(replace(CALL, digest="another"), SECRET).always
    assert store.answer(replace(listed, answer="refuse"), "once", "cli", 60)  # the newest word holds
    assert store.refusal(CALL) is None


def test_a_refused_call_of_a_client_that_was_asked_stays_refused(open_values: Open) -> None:
    store = Approvals(open_values())
    store.refuse(pending(asked=True), "page", 60)
    (found,) = store.pending()
    assert (found.asked, found.answer, found.by) == (False, "refuse", "page")
    assert store.refusal(CALL) is not None
    assert all(store.refusal(other) is None for other in OTHERS)
    store.forget_refusal(CALL)
    assert (store.refusal(CALL), store.pending()) == (None, [])


def test_always_is_for_the_token_with_this_secret_and_the_tool_with_this_definition(open_values: Open) -> None:
    store = Approvals(open_values())
    standing = store.always(CALL, SECRET, "page")
    assert store.look(replace(CALL, digest="any"), SECRET).always
    assert store.look(replace(CALL, project="p"), SECRET).always
    assert not store.look(CALL, "4567").always
    assert not any(
        store.look(replace(CALL, **other), SECRET).always for other in ({"token": "u"}, {"definition": "d2"})
    )
    assert not store.look(replace(CALL, tool_key="s:wipe2"), SECRET).always
    assert store.withdraw(standing)
    assert not store.look(CALL, SECRET).always


def test_a_withdrawn_always_leaves_no_once_behind_and_an_answer_can_be_dropped(open_values: Open) -> None:
    store = Approvals(open_values())
    other = replace(CALL, tool_key="s:other")
    for call in (CALL, other):
        listed = store.defer(pending(call), 60)
        assert listed is not None
        assert store.answer(listed, "once", "cli", 60)
    assert store.withdraw(store.always(CALL, SECRET, "cli"))
    assert store.look(CALL, SECRET) == Looked()
    (answered,) = store.pending()
    assert answered.call == other
    assert store.answer(answered, "refuse", "cli", 60)
    assert not store.drop(answered)  # it is another answer now
    assert store.look(other, SECRET).answer == "refuse"
    assert store.drop(store.pending()[0])
    assert store.look(other, SECRET) == Looked()


def test_a_round_is_continued_once_by_the_same_call(open_values: Open) -> None:
    store = Approvals(open_values())
    word = store.open_round(CALL, 60)
    assert not any(store.continue_round(word, other) for other in OTHERS)
    assert not any(store.continue_round(made_up, CALL) for made_up in ("", "x", word + "x", "../" + word, "\x00", "é"))
    assert store.continue_round(word, CALL)
    assert not store.continue_round(word, CALL)


def test_what_cannot_be_read_is_no_yes(open_values: Open) -> None:
    values = open_values()
    store = Approvals(values)
    store.always(CALL, SECRET, "page")
    for key in values.list("confirm/"):
        values.put(key, b"{}")
    with pytest.raises(StateAwayError):
        store.look(CALL, SECRET)


def test_a_call_that_waited_in_a_killed_gateway_is_not_listed_once_its_lease_is_over(tmp_path: Path) -> None:
    at = 0.0
    killed, other = (Approvals(SqliteKeyValues(tmp_path, lambda: at)) for _ in range(2))
    killed.add(pending(asked=True), 600)
    deferred = killed.defer(pending(), 600)
    assert len(other.pending()) == 2
    at = LEASE_S + 1
    assert other.pending() == [deferred]
    other.add(pending(asked=True), 600)
    assert len(killed.pending()) == 2
    other.close()
    killed.close()


def test_a_call_whose_client_has_left_is_told_to_the_owner_and_not_listed(open_values: Open) -> None:
    store = Approvals(open_values())
    waiting = pending(asked=True)
    store.add(waiting, 60)
    assert store.answer(waiting, "once", "cli", 60)
    store.leave(waiting)
    found = store.listed(waiting)
    assert found is not None
    assert found.gone
    assert store.pending() == []
    assert store.answers() == {}
