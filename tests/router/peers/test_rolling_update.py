"""A rolling update: a replica of the first version with replicas, and one of this version, act as one gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.earlier_version import unpack_earlier
from tests.gateway_process import GatewayProcess
from tests.router.cli.commands import run
from tests.router.peers import test_scenarios as scenarios
from tests.router.peers.cluster import Cluster, cluster

pytestmark = pytest.mark.replicas

ROOT = Path(__file__).parents[3]
HELD_BACK = (
    "audit_rows"  # of the older one, in the journal, where SQLite's table has been extended; in PostgreSQL it goes on
)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the version before."""
    return unpack_earlier(tmp_path_factory.mktemp("earlier"))


@pytest.fixture(scope="module", params=["files", "postgresql"])
async def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, earlier: Path
) -> AsyncIterator[Cluster]:
    """A replica of each version, behind the round-robin forwarder. They start at once, and make the tables together."""
    database = request.getfixturevalue("postgres").new_database() if request.param == "postgresql" else None
    old = {"PYTHONPATH": str(earlier)}
    folder = tmp_path_factory.mktemp("both")
    async with (
        cluster(folder, 2, database=database, environments=[old], audit={"arguments": True}) as replicas,
        replicas.proxy("forwarder"),
    ):
        yield replicas


async def health_of(gateway: GatewayProcess) -> dict[str, Any]:
    async with httpx2.AsyncClient(headers=gateway.headers) as http:
        health: dict[str, Any] = (await http.get(f"{gateway.base_url}/health")).json()
        return health


async def test_the_two_versions_understand_each_other(both: Cluster) -> None:
    """Sessions, answers to questions, parked calls, ends, cancellations, streams, stored results and rows of both."""
    await scenarios.test_discovery_and_calls(both, "legacy")
    for era in ("legacy", "modern"):
        await scenarios.test_a_question_reaches_the_client_and_its_answer_the_call(both, era, "legacy")
        await scenarios.test_a_subscriber_hears_of_a_change(both, era)
        await scenarios.test_a_large_result_is_read_on_at_any_replica(both, era)
    await scenarios.test_a_session_that_was_deleted_is_gone_at_all_replicas(both)
    await scenarios.test_a_cancellation_reaches_the_call(both)
    await scenarios.test_a_session_whose_capabilities_are_too_large_for_its_id(both)
    await scenarios.test_the_old_sse_transport(both)
    if HELD_BACK not in await health_of(both.gateways[0]):
        await scenarios.test_all_rows_of_all_replicas_are_in_one_audit(both)


async def test_both_are_well_and_the_newer_one_says_which_is_the_other(
    both: Cluster, request: pytest.FixtureRequest
) -> None:
    older, newer = [await health_of(gateway) for gateway in both.gateways]
    if "postgresql" in request.node.name:
        assert HELD_BACK not in older, older
    assert older["ready"]
    assert newer["ready"]
    assert not older.keys() & {"state_database", "request_keys", "tasks"}, older
    assert not newer.keys() & {"state_database", "request_keys", "tasks", HELD_BACK}, newer
    at, status = both.gateways[1], dict[str, Any]()
    for own in (at.state_dir, *(at.state_dir / "replicas" / name for name in "12")):
        told = await run(both.folder, "status", "--json", POINTSMAN_STATE_DIR=str(own))
        status = json.loads(told.stdout or "{}")
        if status.get("process") == at.pid:
            break
    (other,) = (one for one in status["replicas"] if not one["this"])
    assert other["problem"] == "It runs another version of Pointsman, which does not say how it is."
