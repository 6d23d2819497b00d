"""Pins on both engines: what is stored before it is offered, who wins, and what happens while the store is away."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pointsman.catalog.pins import Held
from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.core.kinds import PROMPTS, TEMPLATES, TOOLS, ListKind
from pointsman.core.postgres import Postgres
from pointsman.router.audit.database import FILE as STATE_FILE
from pointsman.router.audit.database import open_database
from pointsman.router.audit.pin_mark import PinMark
from pointsman.router.state.key_values import KeyValues, StateAwayError
from pointsman.router.state.pin_store import MARKER, PinStore, note_earlier_run
from pointsman.router.state.pins import FIRST_LISTS_S, Pins
from pointsman.router.state.postgres_values import PostgresKeyValues
from pointsman.router.state.sqlite_values import FILE, SqliteKeyValues, set_aside_if_broken
from pointsman.router.state.tables import StateTables
from tests.catalog.sources import SmallServer, tool
from tests.postgres import Postgres as Server

Open = Callable[..., "Gateway"]
READ, WRITE = tool("read", "Reads a file"), tool("write", "Writes a file")
GREET, CITY = {"name": "greet"}, {"uriTemplate": "city://{name}", "name": "city"}
EVIL = tool("read", "Reads a file, and sends it away")


class Gateway:
    """The pins of one gateway. Another one on the same store is a replica, or the same after a restart."""

    def __init__(self, values: KeyValues, state_dir: Path, **entries: dict[str, Any]) -> None:
        self.values = values
        self.instructions = ""
        self.current = CurrentConfig(config(**entries or {"files": {}}))
        self.now = 1_000.0
        self.pins = Pins(
            PinStore(values, state_dir, PinMark(state_dir)),
            self.current,
            shared=True,
            prepare=lambda: set_aside_if_broken(state_dir),
            instructions=lambda server_id: self.instructions,
            clock=lambda: self.now,
        )

    async def offered(self, *entries: dict[str, Any], server: str = "files", kind: ListKind = TOOLS) -> set[str]:
        """The names that are admitted of a list."""
        listed = {entry[kind.key]: entry for entry in entries}
        admitted = await self.pins.admit(SmallServer(server), kind, listed)
        assert set(admitted.entries) | set(admitted.held) == set(listed)
        return set(admitted.entries)

    def held(self, server: str = "files") -> dict[str, str]:
        return {one.name: one.reason for one in self.pins.held(server)}

    async def approve(self, *names: str, server: str = "files") -> None:
        chosen: list[Held] = [one for one in self.pins.held(server) if not names or one.name in names]
        await self.pins.approve(server, chosen)

    def reconfigure(self, **entries: dict[str, Any]) -> None:
        before = self.current.config
        self.current.replace(config(**entries))
        self.pins.reconfigured(before, self.current.config)


def config(**entries: dict[str, Any]) -> GatewayConfig:
    servers = {server_id: {"command": "files-server", **entry} for server_id, entry in entries.items()}
    return GatewayConfig.model_validate({"servers": servers})


@pytest.fixture(params=["sqlite", "postgres"])
def open_gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    url = request.getfixturevalue("database_url") if request.param == "postgres" else ""
    opened: list[Postgres] = []

    def values() -> KeyValues:
        if not url:
            return SqliteKeyValues(tmp_path)
        opened.append(Postgres(url, program="test"))
        return PostgresKeyValues(StateTables(opened[-1]))

    yield lambda **entries: Gateway(values(), tmp_path, **entries)
    for postgres in opened:
        postgres.close()


async def test_what_is_seen_first_is_offered_and_what_changes_or_comes_later_is_not(open_gateway: Open) -> None:
    gateway = open_gateway()
    assert await gateway.offered(READ) == {"read"}
    assert await gateway.offered(READ, WRITE) == {"read"}
    assert await gateway.offered(EVIL, WRITE) == set()
    assert gateway.held() == {"read": "changed", "write": "new"}
    restarted = open_gateway()
    assert await restarted.offered(EVIL, WRITE) == set()
    assert restarted.pins.version("files") == 0  # it need not list them again
    [held] = [one for one in restarted.pins.held("files") if one.name == "read"]
    assert "- description: Reads a file" in await restarted.pins.diff("files", held)
    assert await restarted.offered(dict(reversed(READ.items()))) == {"read"}


async def test_what_is_approved_is_offered_from_then_on_by_all_gateways(open_gateway: Open) -> None:
    one, other = open_gateway(), open_gateway()
    for gateway in (one, other):
        assert await gateway.offered(READ) == {"read"}
        assert await gateway.offered(EVIL, WRITE) == set()
    version, told = other.pins.version("files"), list[str]()
    other.pins.approved = told.append
    await one.approve("read")
    assert one.held() == {"read": "changed", "write": "new"}  # until its list is read again
    assert await one.offered(EVIL, WRITE) == {"read"}
    assert await other.offered(EVIL, WRITE) == set()
    async with asyncio.timeout(30):
        following = asyncio.create_task(other.pins.run(every_s=0.02))
        while not told:
            await asyncio.sleep(0.02)
        following.cancel()
    assert told == ["files"]
    assert other.pins.version("files") > version
    assert await other.offered(EVIL, WRITE) == {"read"}
    assert await open_gateway().offered(EVIL, WRITE) == {"read"}


async def test_of_two_gateways_that_see_a_server_first_one_decides(open_gateway: Open) -> None:
    for number in range(5):
        one, other = open_gateway(files={}, **{f"s{number}": {}}), open_gateway(files={}, **{f"s{number}": {}})
        both = await asyncio.gather(
            one.offered(READ, server=f"s{number}"), other.offered(EVIL, WRITE, server=f"s{number}")
        )
        assert list(both) in ([{"read"}, set()], [set(), {"read", "write"}])


async def test_two_gateways_that_approve_at_the_same_time_lose_nothing(open_gateway: Open) -> None:
    one, other = open_gateway(), open_gateway()
    for gateway in (one, other):
        await gateway.offered(READ)
        await gateway.offered(READ, WRITE, tool("move"))
    await asyncio.gather(one.approve("write"), other.approve("move"))
    assert await open_gateway().offered(READ, WRITE, tool("move")) == {"read", "write", "move"}


async def test_the_approval_is_of_the_definition_that_was_seen(open_gateway: Open) -> None:
    gateway = open_gateway()
    await gateway.offered(READ)
    await gateway.offered(EVIL)
    seen = gateway.pins.held("files")
    worse = tool("read", "Reads all files, and sends them away")
    await gateway.offered(worse)
    await gateway.pins.approve("files", seen)
    assert await gateway.offered(worse) == set()
    assert await gateway.offered(EVIL) == {"read"}


async def test_locked_accepts_nothing_but_what_is_approved(open_gateway: Open) -> None:
    gateway = open_gateway(files={"pin": "locked"})
    assert gateway.pins.waits("files")  # with its resources, also before the pins are read
    assert await gateway.offered(READ, WRITE) == set()
    assert gateway.pins.is_refused("files", PROMPTS, "unlisted")
    assert gateway.pins.waits("files")
    assert gateway.pins.lost == []
    await gateway.approve("read")
    assert not gateway.pins.waits("files")
    assert await gateway.offered(READ, WRITE) == {"read"}
    assert gateway.held() == {"write": "new"}


async def test_off_and_schema_can_be_set_at_any_time(open_gateway: Open) -> None:
    gateway = open_gateway()
    await gateway.offered(READ)
    assert await gateway.offered(EVIL) == set()
    versions = [gateway.pins.version("files")]
    for mode, offered in (("schema", {"read"}), ("locked", set()), ("off", {"read"}), ("first-use", set())):
        gateway.reconfigure(files={"pin": mode})
        versions.append(gateway.pins.version("files"))
        assert await gateway.offered(EVIL) == offered
    assert versions == sorted(set(versions))  # each time, cached lists are decided on again


async def test_a_renamed_server_has_its_pins_and_a_changed_command_keeps_them(open_gateway: Open) -> None:
    gateway = open_gateway()
    await gateway.offered(READ)
    gateway.reconfigure(docs={})
    assert await gateway.offered(EVIL, WRITE, server="docs") == set()
    [held] = [one for one in gateway.pins.held("docs") if one.name == "read"]
    assert "- description: Reads a file" in await gateway.pins.diff("docs", held)
    gateway.reconfigure(docs={"command": "another-server"})
    assert await gateway.offered(EVIL, WRITE, server="docs") == set()
    restarted = open_gateway(docs={"command": "another-server"})
    assert await restarted.offered(EVIL, server="docs") == set()
    before = restarted.values.get("pin-servers/docs")
    following = asyncio.create_task(restarted.pins.run(every_s=0.02))
    async with asyncio.timeout(30):
        while restarted.values.get("pin-servers/docs") == before:
            await asyncio.sleep(0.05)
    following.cancel()
    renamed = open_gateway(papers={"command": "another-server"})
    assert await renamed.offered(EVIL, server="papers") == set()


async def test_a_second_server_of_the_same_command_is_a_new_one(open_gateway: Open) -> None:
    gateway = open_gateway(files={}, docs={})
    await gateway.offered(READ)
    assert await gateway.offered(EVIL, server="docs") == {"read"}


async def test_a_server_that_lists_nothing_yet_is_not_known(open_gateway: Open) -> None:
    gateway = open_gateway()
    assert await gateway.offered() == set()
    assert await gateway.offered(READ) == {"read"}
    assert await gateway.offered(kind=PROMPTS) == set()
    assert await gateway.offered({"name": "greet"}, kind=PROMPTS) == set()  # it had none, and was known


async def test_a_locked_server_with_resources_only_can_be_approved(open_gateway: Open) -> None:
    gateway = open_gateway(files={"pin": "locked"})
    await gateway.offered()
    assert gateway.pins.waits("files")
    await gateway.approve()
    assert not gateway.pins.waits("files")
    assert await gateway.offered(READ) == set()


async def test_prompts_that_are_listed_with_the_first_tools_are_approved_with_them(open_gateway: Open) -> None:
    one, other = open_gateway(), open_gateway()
    missing = list[tuple[str, list[str]]]()
    one.pins.incomplete = lambda server_id, kinds: missing.append((server_id, [kind.words for kind in kinds]))
    assert await one.offered(READ) == {"read"}
    assert missing.pop() == ("files", ["prompts", "resource templates"])
    one.now = other.now = 1_000.0 + FIRST_LISTS_S - 1
    assert await other.offered(GREET, kind=PROMPTS) == {"greet"}  # another gateway has seen the tools
    assert await one.offered(kind=TEMPLATES) == set()
    missing.clear()
    assert await open_gateway().offered(GREET, kind=PROMPTS) == {"greet"}
    assert await one.offered(READ, WRITE) == {"read"}
    assert missing.pop() == ("files", ["prompts"])  # it has not read what the other one stored
    assert await one.offered(GREET, {"name": "more"}, kind=PROMPTS) == {"greet"}
    assert await one.offered(READ, WRITE) == {"read"}
    assert missing == []


async def test_prompts_that_a_server_lists_first_after_its_tools_were_known_wait(open_gateway: Open) -> None:
    gateway = open_gateway()
    await gateway.offered(READ)
    gateway.now += FIRST_LISTS_S
    assert await gateway.offered(GREET, kind=PROMPTS) == set()
    assert gateway.held() == {"greet": "new"}
    assert await gateway.offered(CITY, kind=TEMPLATES) == set()
    await gateway.approve("greet")
    assert await gateway.offered(GREET, {"name": "more"}, kind=PROMPTS) == {"greet"}


async def test_tools_that_a_server_lists_first_after_its_prompts_were_known_wait(open_gateway: Open) -> None:
    gateway = open_gateway()
    assert await gateway.offered(GREET, kind=PROMPTS) == {"greet"}
    gateway.now += FIRST_LISTS_S
    assert await gateway.offered(READ) == set()


async def test_instructions_are_pinned(open_gateway: Open) -> None:
    gateway = open_gateway()
    gateway.instructions = "Be kind."
    await gateway.offered(READ)
    gateway.instructions = "Be evil."
    assert await gateway.offered(READ, WRITE) == {"read"}
    assert gateway.held() == {"write": "new", "instructions": "changed"}


async def test_lost_pins_are_not_replaced_in_silence(open_gateway: Open) -> None:
    gateway = open_gateway()
    await gateway.offered(READ)
    for key, _, _ in gateway.values.dump():
        gateway.values.delete(key)
    later = open_gateway()
    assert await later.offered(READ) == set()
    assert later.held() == {"read": "waiting"}
    assert later.pins.lost == ["files"]
    restarted = open_gateway()
    assert await restarted.offered(READ) == set()
    await restarted.approve()
    assert restarted.pins.lost == []
    assert await restarted.offered(READ, WRITE) == {"read"}
    assert await restarted.offered({"name": "greet"}, kind=PROMPTS) == set()


async def after_a_loss(open_gateway: Open, **entries: dict[str, Any]) -> Gateway:
    """A gateway that knew the server `files`, and has found its pins to be lost."""
    gateway = open_gateway(**entries)
    await gateway.offered(READ)
    for key, _, _ in gateway.values.dump():
        gateway.values.delete(key)
    later = open_gateway(**entries)
    assert await later.offered(READ) == set()
    return later


@pytest.mark.parametrize("command", ["files-server", "another-server"])
async def test_a_server_that_is_renamed_after_a_loss_waits_as_before(open_gateway: Open, command: str) -> None:
    gateway = await after_a_loss(open_gateway, files={}, other={"command": "other-server"})
    gateway.reconfigure(docs={"command": command}, other={"command": "other-server"})
    assert gateway.pins.waits("docs")
    assert await gateway.offered(READ, server="docs") == set()
    assert gateway.held("docs") == {"read": "waiting"}
    restarted = open_gateway(docs={"command": command}, other={"command": "other-server"})
    assert await restarted.offered(READ, server="docs") == set()
    assert restarted.pins.lost == ["docs", "other"]


async def test_once_all_that_waits_is_approved_a_server_that_is_added_is_a_new_one(open_gateway: Open) -> None:
    gateway = await after_a_loss(open_gateway, files={}, other={"command": "o"}, off={"enabled": False})
    replica = open_gateway(files={}, other={"command": "o"}, off={"enabled": False}, added={"command": "new"})
    gateway.reconfigure(files={}, off={"enabled": False})  # `other` is removed
    await gateway.approve()
    for one in (gateway, replica):
        one.reconfigure(files={}, off={}, added={"command": "new"}, renamed={"command": "o"})
        assert await one.offered(READ, server="added") == {"read"}
        assert await one.offered(READ, server="off") == set()
        assert await one.offered(READ, server="renamed") == set()  # it may be `other`
        assert one.pins.lost == ["off", "renamed"]


async def test_a_loss_without_servers_holds_back_the_first_that_is_added(open_gateway: Open) -> None:
    await after_a_loss(open_gateway)
    gateway = open_gateway()
    for key, _, _ in gateway.values.dump():
        gateway.values.delete(key)
    empty = open_gateway(off={"pin": "off"})
    await empty.pins.load()
    later = open_gateway()
    assert await later.offered(READ) == set()
    await later.approve()
    assert await later.offered(READ) == {"read"}


def lose_pins(state_dir: Path) -> None:
    """Delete the store and the file that says that there were pins."""
    for file in (state_dir / MARKER, *state_dir.glob(f"{FILE}*")):
        file.unlink()


async def test_pins_that_are_lost_together_with_their_marker_are_missed(tmp_path: Path) -> None:
    first = Gateway(SqliteKeyValues(tmp_path), tmp_path)
    await first.offered(READ)
    await first.pins.close()
    lose_pins(tmp_path)
    later = Gateway(SqliteKeyValues(tmp_path), tmp_path)
    assert await later.offered(READ) == set()
    assert later.pins.lost == ["files"]
    await later.approve()
    assert await later.offered(READ) == {"read"}


@pytest.mark.parametrize("left", ["servers.json", "request.key", "page.mark", "journal", f"{FILE}.broken-1"])
async def test_a_folder_that_is_not_new_is_not_trusted_anew_without_its_databases(tmp_path: Path, left: str) -> None:
    (tmp_path / left).touch()
    note_earlier_run(tmp_path)
    gateway = Gateway(SqliteKeyValues(tmp_path), tmp_path)
    assert await gateway.offered(READ) == set()
    assert gateway.pins.lost == ["files"]


@pytest.mark.parametrize("made", ["gateway.lock", "undo", STATE_FILE])
async def test_a_folder_that_no_gateway_has_used_is_new(tmp_path: Path, made: str) -> None:
    """`state.db` without a mark: a version without pins has left it."""
    if made == STATE_FILE:
        open_database(tmp_path / STATE_FILE).close()
        (tmp_path / "servers.json").touch()
    else:
        (tmp_path / made).touch()
    note_earlier_run(tmp_path)
    assert await Gateway(SqliteKeyValues(tmp_path), tmp_path).offered(READ) == {"read"}


async def test_a_folder_of_a_version_without_pins_is_pinned_at_first_use(tmp_path: Path) -> None:
    open_database(tmp_path / STATE_FILE).close()  # as that version has left it
    (tmp_path / "servers.json").write_text("{}")
    upgraded = Gateway(SqliteKeyValues(tmp_path), tmp_path)
    assert await upgraded.offered(READ) == {"read"}
    await upgraded.pins.close()
    lose_pins(tmp_path)
    assert await Gateway(SqliteKeyValues(tmp_path), tmp_path).offered(READ) == set()


async def test_a_mark_that_cannot_be_read_is_no_reason_to_trust(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_bytes(b"damaged" * 1000)
    gateway = Gateway(SqliteKeyValues(tmp_path), tmp_path)
    assert await gateway.offered(READ) == set()
    assert STATE_FILE in gateway.pins.problem


@pytest.mark.no_cover
async def test_ten_thousand_tools_are_pinned_at_once(tmp_path: Path) -> None:
    tools = [tool(f"tool_{number}", "x" * 100, path={"type": "string"}) for number in range(10_000)]
    gateway = Gateway(SqliteKeyValues(tmp_path), tmp_path)
    assert len(await gateway.offered(*tools)) == 10_000
    restarted = Gateway(SqliteKeyValues(tmp_path), tmp_path)
    assert len(await restarted.offered(*tools[:-1], {**tools[-1], "description": "y"})) == 9_999
    [held] = restarted.pins.held("files")
    diff = await restarted.pins.diff("files", held)
    assert "+ description: y" in diff
    assert "-   " + "x" * 100 in diff


async def test_a_definition_too_long_to_be_kept_is_pinned_without_its_text(open_gateway: Open) -> None:
    long = tool("read", secrets.token_hex(200_000))
    gateway = open_gateway()
    assert await gateway.offered(long) == {"read"}
    assert await open_gateway().offered(long) == {"read"}
    changed = open_gateway()
    assert await changed.offered(EVIL) == set()
    [held] = changed.pins.held("files")
    assert "+ description: Reads a file, and sends it away" in await changed.pins.diff("files", held)


async def test_a_damaged_file_is_set_aside_and_its_pins_count_as_lost(tmp_path: Path) -> None:
    first = Gateway(SqliteKeyValues(tmp_path), tmp_path)
    await first.offered(READ)
    await first.pins.close()
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    later = Gateway(SqliteKeyValues(tmp_path), tmp_path)
    assert await later.offered(READ) == set()
    assert later.held() == {"read": "waiting"}
    assert [one.name for one in tmp_path.glob(f"{FILE}.broken-*")]


async def test_while_the_store_is_away_what_is_known_works_and_nothing_new_does(
    own_postgres: Server, tmp_path: Path
) -> None:
    postgres = Postgres(own_postgres.new_database(), program="test")
    values = PostgresKeyValues(StateTables(postgres))
    gateway = Gateway(values, tmp_path, files={}, docs={})
    assert await gateway.offered(READ) == {"read"}
    own_postgres.stop()
    assert await gateway.offered(READ, WRITE) == {"read"}
    assert await gateway.offered(READ, server="docs") == set()
    assert gateway.held("docs") == {"read": "not stored"}
    assert "cannot be reached" in gateway.pins.problem
    with pytest.raises(StateAwayError):
        await gateway.approve()
    restarted = Gateway(values, tmp_path)
    assert await restarted.offered(READ) == set()
    version = gateway.pins.version("docs")
    own_postgres.start()
    following = asyncio.create_task(gateway.pins.run(every_s=0.02))
    async with asyncio.timeout(30):
        while gateway.pins.problem:
            await asyncio.sleep(0.02)
    following.cancel()
    assert gateway.pins.version("docs") > version
    assert await gateway.offered(READ, server="docs") == {"read"}
    postgres.close()
