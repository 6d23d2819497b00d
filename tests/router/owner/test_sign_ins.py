"""Codes and cookies of the page, with a clock that the test moves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pointsman.router.owner.sign_in.page_sign_ins import CODE_S, FILE, MAX_CODES, SESSION_S, SignIns

KEYS = ("k" * 64,)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sign_ins(tmp_path: Path, clock: Clock) -> SignIns:
    return SignIns(KEYS, tmp_path, clock)


def test_a_code_ends_after_ten_minutes_and_after_its_use(sign_ins: SignIns, clock: Clock) -> None:
    late, used = sign_ins.new_code(), sign_ins.new_code()
    assert sign_ins.redeem(used) is not None
    assert sign_ins.redeem(used) is None
    clock.now += CODE_S
    assert sign_ins.redeem(late) is None


def test_a_cookie_ends_after_twelve_hours(sign_ins: SignIns, clock: Clock) -> None:
    cookie = sign_ins.redeem(sign_ins.new_code())
    clock.now += SESSION_S - 1
    assert sign_ins.session(cookie) is not None
    clock.now += 1
    assert sign_ins.session(cookie) is None


def test_a_cookie_outlives_a_restart_but_not_a_logout(sign_ins: SignIns, tmp_path: Path, clock: Clock) -> None:
    cookie = sign_ins.redeem(sign_ins.new_code())
    assert SignIns(KEYS, tmp_path, clock).session(cookie) is not None
    sign_ins.end_all()
    assert sign_ins.session(cookie) is None
    assert SignIns(KEYS, tmp_path, clock).session(cookie) is None


def test_a_logout_at_one_replica_ends_the_unused_codes_of_the_others(
    sign_ins: SignIns, tmp_path: Path, clock: Clock
) -> None:
    replica = SignIns(KEYS, tmp_path, clock)
    before = replica.new_code()
    sign_ins.end_all()
    after = replica.new_code()
    assert replica.redeem(before) is None
    assert replica.redeem(after) is not None


def test_a_code_made_while_the_mark_cannot_be_read_does_not_work(sign_ins: SignIns, tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    code = sign_ins.new_code()
    (tmp_path / FILE).rmdir()
    assert sign_ins.redeem(code) is None
    assert sign_ins.redeem(sign_ins.new_code()) is not None


def test_a_gateway_with_the_same_keys_and_another_folder_is_another_one(
    sign_ins: SignIns, tmp_path: Path, clock: Clock
) -> None:
    cookie = sign_ins.redeem(sign_ins.new_code())
    other = tmp_path / "other"
    other.mkdir()
    assert SignIns(KEYS, other, clock).session(cookie) is None


def test_what_is_sealed_for_something_else_is_no_session(sign_ins: SignIns) -> None:
    assert sign_ins.session(sign_ins.sealed("flash", {"text": "x"}, 60)) is None
    for forged in (None, "", "v1.x", "\x00", "x" * 10_000, "ä"):
        assert sign_ins.session(forged) is None


def test_without_a_readable_mark_nobody_is_signed_in(sign_ins: SignIns, tmp_path: Path, clock: Clock) -> None:
    cookie = sign_ins.redeem(sign_ins.new_code())
    (file,) = tmp_path.glob("page.*")
    file.unlink()
    file.mkdir()
    assert SignIns(KEYS, tmp_path, clock).session(cookie) is None


def test_open_codes_are_bounded(sign_ins: SignIns) -> None:
    first = sign_ins.new_code()
    for _ in range(MAX_CODES):
        sign_ins.new_code()
    assert sign_ins.redeem(first) is None


def test_the_mark_is_for_its_owner_only(sign_ins: SignIns, tmp_path: Path) -> None:
    sign_ins.redeem(sign_ins.new_code())
    (file,) = tmp_path.glob("page.*")
    assert file.stat().st_mode & 0o777 == 0o600


def test_replicas_that_start_together_agree_on_the_mark(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "replicas").mkdir()
    replicas = [SignIns(KEYS, tmp_path, clock) for _ in range(8)]
    with ThreadPoolExecutor(len(replicas)) as threads:
        codes = list(threads.map(SignIns.new_code, replicas))
    cookies = [replica.redeem(code) for replica, code in zip(replicas, codes, strict=True)]
    assert all(replica.session(cookie) is not None for replica in replicas for cookie in cookies)


def test_cookies_are_named_by_the_keys(tmp_path: Path) -> None:
    old, new = "o" * 64, "n" * 64
    before, after, other = (SignIns(keys, tmp_path).names for keys in ([old], [new, old], ["x" * 64]))
    assert (len(after), after[1]) == (2, before[0])
    assert not {*other} & {*after}
    assert all(name.isalnum() and key not in name for name in after for key in (old, new))
