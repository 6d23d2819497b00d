"""Who has signed in: remembered within bounds, until a token ends, a reload or a revocation."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.catalog import confirmation, identities, rights
from pointsman.catalog.identities import Identities, Identity, is_identity, person_of, rights_token
from pointsman.catalog.rights import OWNER_ID, RightsIndex
from pointsman.config.model import GatewayConfig, Token
from pointsman.core.errors import UnauthorizedError
from pointsman.core.model import Caller

CONFIG = GatewayConfig.model_validate({"servers": {"time": {"command": "true"}}, "projects": {"demo": {}}})


class Source:
    """Knows everybody who begins with `t:`, as `t:NAME` or `t:NAME:SECONDS`. Fits `IdentitySource`."""

    def __init__(self) -> None:
        self.revoked: set[str] = set()
        self.verified = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.confirm = "never"

    def may_know(self, secret: str) -> bool:
        return secret.startswith("t:")

    async def identify(self, secret: str) -> Identity:
        self.verified += 1
        await self.may_go_on.wait()
        _, name, *seconds = secret.split(":")
        rights = self.rights_of(f"@test/{name}")
        if rights is None:
            raise UnauthorizedError("revoked")
        return Identity(f"@test/{name}", rights, 1000.0 + float(seconds[0] if seconds else 600))

    def widest(self, identity_id: str) -> str:
        return identity_id

    def rights_of(self, identity_id: str) -> Token | None:
        if identity_id in self.revoked or not identity_id.startswith("@test/"):
            return None
        digest = rights_token(identity_id)
        return Token(sha256=digest, projects=("", "demo"), servers=("*",), confirm=self.confirm)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def source() -> Source:
    return Source()


async def test_secrets_of_one_person_end_each_at_its_time(source: Source) -> None:
    clock = Clock()
    known = Identities([source], clock=clock)
    await known.sign_in("t:ann:10")
    await known.sign_in("t:ann:20")
    assert known.find("t:ann:10") == known.find("t:ann:20") == "@test/ann"
    clock.now += 15
    assert known.find("t:ann:10") is None
    assert known.find("t:ann:20") == "@test/ann"
    assert known.is_valid("@test/ann", clock.now)
    clock.now += 10
    assert not known.is_valid("@test/ann", clock.now)


async def test_a_secret_that_has_ended_is_verified_again(source: Source) -> None:
    clock = Clock()
    known = Identities([source], clock=clock)
    await known.sign_in("t:ann:10")
    clock.now += 15
    await known.sign_in("t:ann:10")
    assert source.verified == 2


async def test_what_nobody_may_know_is_left_alone(source: Source) -> None:
    known = Identities([source])
    for secret in (None, "", "ptm_x", "x" * 2 * identities.MAX_SECRET_CHARS):
        await known.sign_in(secret)
    assert source.verified == 0


async def test_one_request_that_leaves_does_not_end_the_verification_for_the_others(source: Source) -> None:
    source.may_go_on.clear()
    known = Identities([source], clock=Clock())
    first, second = (asyncio.ensure_future(known.sign_in("t:ann")) for _ in range(2))
    while not source.verified:
        await asyncio.sleep(0)
    first.cancel()
    source.may_go_on.set()
    await second
    assert source.verified == 1
    assert known.find("t:ann") == "@test/ann"


async def test_what_is_remembered_is_bounded(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "MAX_SECRETS", 5)
    monkeypatch.setattr(identities, "MAX_IDENTITIES", 3)
    known = Identities([source], clock=Clock())
    for number in range(50):
        await known.sign_in(f"t:person{number}")
    assert len(known._secrets) == 5
    assert len(known._expiry) == 3
    assert known.find("t:person49") == "@test/person49"
    assert known.find("t:person0") is None
    assert known.find("t:person45") == "@test/person45"  # it signs in again by being found
    assert len(known._expiry) == 3
    assert known.signed_in() == ["@test/person45", "@test/person49", "@test/person48"]


async def test_grants_of_identities_are_bounded(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "MAX_SIGNED_IN", 5)
    monkeypatch.setattr(confirmation, "MAX_KEPT", 5)
    source.confirm = "destructive"
    known = Identities([source], clock=Clock())
    index = RightsIndex(CONFIG, known)
    for number in range(30):
        await known.sign_in(f"t:person{number}")
        caller = index.identify(f"t:person{number}", None, 1000.0)
        assert index.usable_servers(caller) == ("time",)
        assert index.names_of(caller).owners("time__x")
        assert index.confirm.of(caller, "time") is not None
    assert max(len(index._grants), len(index._names), len(index.confirm._rules)) <= 5


async def test_a_revoked_identity_is_out_at_once_and_a_changed_one_after_word_of_it(source: Source) -> None:
    known = Identities([source], clock=Clock())
    await known.sign_in("t:ann")
    index = RightsIndex(CONFIG, known)
    caller = index.identify("t:ann", None, 1000.0)
    assert index.still_valid(caller, 1000.0)
    assert index.callers_of(caller.token_id) == [Caller("@test/ann", None), Caller("@test/ann", "demo")]
    source.revoked = {"@test/ann"}
    assert not index.still_valid(caller, 1000.0)
    with pytest.raises(UnauthorizedError):
        index.identify("t:ann", None, 1000.0)
    known.forget("@test/ann")
    source.revoked = set()
    assert not index.still_valid(caller, 1000.0)  # it has to sign in again


def test_ids_tell_identities_from_tokens_and_from_the_owner() -> None:
    assert is_identity("@sso/alice#staff:read")
    assert not is_identity(OWNER_ID)
    assert not is_identity("alice")
    assert person_of("@sso/alice#staff:read@demo") == "@sso/alice"
    assert person_of("@grant/7") == "@grant/7"
