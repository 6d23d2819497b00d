"""Replicas, ended sessions and usage in PostgreSQL, as several gateways see them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pointsman.core.postgres import Postgres, psycopg
from pointsman.router.observe.usage import HALF_LIFE_S, UsageMemory
from pointsman.router.state.ended_sessions import EndedSessions
from pointsman.router.state.key_values import StateAwayError
from pointsman.router.state.replicas import Replica, ReplicaTable
from pointsman.router.state.tables import StateTables
from pointsman.router.state.usage_table import UsageTable
from tests.postgres import Postgres as Server

A, B = Replica("aaaaaaaa", "tcp:10.0.0.1:1"), Replica("bbbbbbbb", "tcp:10.0.0.2:1")


@pytest.fixture
def tables(database_url: str) -> Iterator[list[StateTables]]:
    """Of two gateways."""
    pools = [Postgres(database_url, program="test") for _ in range(2)]
    yield [StateTables(postgres) for postgres in pools]
    for postgres in pools:
        postgres.close()


async def test_replicas_find_one_another_and_lose_those_that_are_gone(tables: list[StateTables]) -> None:
    one, other = (ReplicaTable(each, Replica) for each in tables)
    await one.announce(A)
    await other.announce(B)
    assert one.living() == [A]  # at once, without the database
    one.beat()
    other.beat()
    one.beat()
    assert one.living() == other.living() == [A, B]
    with tables[0].connection() as connection:
        connection.execute("UPDATE replicas SET seen = seen - interval '11 s' WHERE id = %s", (B.id,))
    one.beat()
    assert one.living() == [A]
    other.beat()
    one.beat()
    assert one.living() == [A, B]
    await other.withdraw()
    one.beat()
    assert one.living() == [A]


async def test_the_gateway_that_has_the_files_of_an_ended_one_is_known(tables: list[StateTables]) -> None:
    one, other = (ReplicaTable(each, Replica) for each in tables)
    await one.announce(A)
    await other.announce(B)
    other.earlier = ["cccccccc", "dddddddd"]
    other.beat()
    one.beat()
    assert (one.heir_of("cccccccc"), one.heir_of("dddddddd"), one.heir_of(A.id)) == (B.id, B.id, None)
    await other.withdraw()
    one.beat()
    assert one.heir_of("cccccccc") is None


def test_what_postgresql_refuses_is_one_line_with_a_next_step(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("CREATE ROLE reader LOGIN")
        try:
            reader = Postgres(database_url.replace("postgres@", "reader@"), program="test")
            with pytest.raises(StateAwayError) as raised, StateTables(reader).connection():
                pass
            reader.close()
        finally:
            owner.execute("DROP ROLE reader")
    assert str(raised.value) == (
        "PostgreSQL refused it: permission denied for schema public. Make the user of the address the owner of the "
        "database, or give it the right with GRANT."
    )


def test_a_user_without_a_schema_to_create_in_gets_the_same_next_step(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("CREATE ROLE nobody LOGIN")
        owner.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        try:
            stranger = Postgres(database_url.replace("postgres@", "nobody@"), program="test")
            with pytest.raises(StateAwayError) as raised, StateTables(stranger).connection():
                pass
            stranger.close()
        finally:
            owner.execute("DROP ROLE nobody")
    assert str(raised.value) == (
        "PostgreSQL refused it: no schema has been selected to create in. Make the user of the address the owner of "
        "the database, or give it the right with GRANT."
    )


def test_a_statement_that_fails_is_one_line(tables: list[StateTables]) -> None:
    with pytest.raises(StateAwayError) as raised, tables[0].connection() as connection:
        connection.execute("SELECT nothing FROM replicas")
    assert str(raised.value) == (
        'PostgreSQL refused it: column "nothing" does not exist. The log of PostgreSQL has the details.'
    )


async def test_replicas_without_a_common_key_are_noticed_by_both(tables: list[StateTables]) -> None:
    one, other = (ReplicaTable(each, Replica) for each in tables)
    await one.announce(A)
    await other.announce(B)
    for mine, others, strangers in (("k l", "m", True), ("k l", "m k", False), ("k", "", False)):
        one.keys, other.keys = frozenset(mine.split()), frozenset(others.split())
        one.beat()
        other.beat()
        one.beat()
        assert (one.strangers, other.strangers) == (([B], [A]) if strangers else ([], []))
        assert one.living() == [A, B]


async def test_who_was_known_is_taken_to_live_while_the_database_is_away(own_postgres: Server) -> None:
    postgres = Postgres(own_postgres.new_database(), program="test")
    table = ReplicaTable(StateTables(postgres), Replica)
    await table.announce(A)
    table.beat()
    assert table.seen_within(0.0) == ()
    own_postgres.stop()
    with pytest.raises(StateAwayError):
        table.beat()
    assert table.living() == [A]
    assert table.seen_within(0.0) is None  # nobody could give a sign of life
    await table.withdraw()
    postgres.close()


def test_a_session_that_one_gateway_ended_is_known_to_all(tables: list[StateTables]) -> None:
    one, other = (EndedSessions(each) for each in tables)
    one.add([b"first"], 60)
    assert [digest for digest, _ in other.read()] == [b"first"]
    one.add([b"first", b"second"], 60)
    assert {b"second"} <= {digest for digest, _ in other.read()}
    one.add([b"over"], -1)
    fresh = EndedSessions(tables[0]).read()
    assert {digest for digest, _ in fresh} == {b"first", b"second"}
    assert all(50 < left_s <= 60 for _, left_s in fresh)
    one.purge()
    with tables[0].connection() as connection:
        assert connection.execute("SELECT count(*) FROM ended_sessions").fetchone() == (2,)


def test_what_one_gateway_learns_all_know_and_nothing_counts_twice(tables: list[StateTables]) -> None:
    one, other = (UsageTable(each, HALF_LIFE_S) for each in tables)
    memories = [UsageMemory(), UsageMemory()]
    for memory in memories:
        memory.share()
        memory._learn("p", ("time", "tokyo"), "time:now", 0.0)
    for table, memory in zip((one, other), memories, strict=True):
        table.add(memory.take())
    for _ in range(3):  # to read again changes nothing
        for table, memory in zip((one, other), memories, strict=True):
            memory.merge(table.read())
    figures = [memory.figures("p", ["time tokyo"])["time:now"] for memory in memories]
    assert figures == pytest.approx([0.5, 0.5], rel=1e-3)  # two choices: half of the maximum
    assert memories[0].figures(None, ["time tokyo"]) == {}
    assert memories[0].take() == {}


def test_usage_decays_in_the_table_as_in_memory(tables: list[StateTables]) -> None:
    table = UsageTable(tables[0], HALF_LIFE_S)
    table.add({(None, "word", "a:b"): 4.0})
    with tables[0].connection() as connection:
        connection.execute("UPDATE usage SET at = at - make_interval(secs => %s)", (HALF_LIFE_S,))
    table.add({(None, "word", "a:b"): 1.0})
    (learnt,) = UsageTable(tables[1], HALF_LIFE_S).read()
    assert learnt.project is None
    assert learnt.weight == pytest.approx(3.0, rel=1e-3)
