"""A rolling update: a replica opens what version 0.2.0 without replicas has sealed, as clients and its folder carry it.

The texts below were made by that version, with this key and clock.
"""

from __future__ import annotations

from pathlib import Path

from pointsman.core.model import Caller
from pointsman.core.seams import FrontRequest
from pointsman.router.front.legacy.sessions import SessionIds
from pointsman.router.front.methods import initial_client
from pointsman.router.front.modern.request_state import Seal
from pointsman.router.gateway.large_results.store import FOLDER, ResultStore
from pointsman.router.peers.replica import replica_in

KEY = "0123456789abcdef" * 4
REPLICA = "5f3a9c21"
CLIENT = initial_client("claude", "2025-06-18", {"elicitation": {}})
SESSION_ID = (
    "v1.XR4BLsizFDzWGsXcxQySYzVFQ32Sl7_ad51TThQPR4VyZiyWqpZ3I2hJRFUq50uf28aUBSqNFIAz4yRWQqdQ_a3ub7jFNyRnvxHYqpNRhdGScr"
    "REnXSmR5eP-ydzhDKmiuvY97Tv9oNXMYY1cQ"
)
REQUEST_STATE = (
    "v1.QJLbR11Dgz5WTmRu2BP3Su6C_WwQqJf-b5gt-GFfJh-nZVWCJmYIJlIQLOWp4rlL6SaV7-eXHcIEF0CZ6d_FBurDTuncbmz43xwVXovWQ4ddgC"
    "8s80nfEb3FRBj7Tz0qdHf8IHll4T4onWbE8vZ4GzhABxPKJ9Qm4QkFTulLMfbSDMoFe_uKVdV-ezAnm6F2qGNyvz2vamF_vwiAtgzTYzi9HKr0eM3O"
    "3-Z44Cyh7C9vFG9yz_rluQpgxeHnu73CTw9QHhobySxWafU91KzojHDR5SD0jpi-a8UQqMGmpHP_0oIRKyHl6n8bHulZfVs"
)
HANDLE, OWNER = "00112233445566778899aabbccddeeff", "0" * 32
STORED = (
    "v1.zVGucq_gFnQV75yfmT2kdpESZtw2wRBoMmZdW1DbaRU8iqbkEbtpwzlL3lN2TZBb8IuwIG3YhzCYBXsPtqHqtrYGguQc-0GYhjuY9aC2cVgIss"
    "Ue43VCk-Gxul4RY7s7lqhp2oE-MTXExBG8Z8uH4XGyoulN7E8s3r4DPQM8EcJTo3BehUslbkuDIO58YDfmJpYZlaE"
)


def clock() -> float:
    return 1_763_000_060.0  # a minute later


def test_a_session_id_restores_the_session_at_any_replica() -> None:
    assert replica_in(SESSION_ID) is None
    found = SessionIds([KEY], clock, REPLICA).read(SESSION_ID)
    assert found is not None
    assert (found.caller, found.project, found.home) == (Caller("ada", "shop"), "shop", None)
    client = found.client
    assert (client.name, client.version, client.capabilities) == (CLIENT.name, CLIENT.version, CLIENT.capabilities)


def test_the_state_of_a_parked_call_opens_and_names_no_replica() -> None:
    params = {"name": "tool_execute", "arguments": {"toolKey": "a:b", "arguments": {}}}
    request = FrontRequest("8", "tools/call", params, Caller("ada", None), CLIENT)
    assert Seal([KEY], "pointsman", clock).open(request, REQUEST_STATE) == {"park": "Zm9v"}


def test_a_stored_result_is_read_where_its_folder_is(tmp_path: Path) -> None:
    file = tmp_path / FOLDER / OWNER / HANDLE
    file.parent.mkdir(parents=True)
    file.write_text(STORED)
    store = ResultStore(tmp_path, [KEY], lambda: 1 << 20, clock, REPLICA)
    stored = store.get(OWNER, HANDLE)
    assert stored is not None
    assert (stored.project_id, stored.tool_key, stored.text) == ("shop", "a:b", "the whole text")
    assert replica_in(HANDLE) is None
    assert not store.is_elsewhere(HANDLE)
