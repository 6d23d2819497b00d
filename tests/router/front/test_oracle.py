"""Our front against the SDK's: the same requests, the same gateway, and a reason for each difference."""

from __future__ import annotations

from typing import NamedTuple

from tests.router.front.compared_requests import REQUESTS, Compared, as_bytes
from tests.router.front.raw_http import Answer
from tests.router.front.sdk_front import sdk_serving
from tests.router.front.served_front import Served, serving
from tests.router.front.small_gateway import SmallGateway


class Seen(NamedTuple):
    """What a client can act on."""

    status: int
    code: int | None  # of JSON-RPC
    keys: str  # of the result, or what else came


class Difference(NamedTuple):
    ours: Seen
    sdk: Seen
    reason: str


EARLY = "a handshake that cannot be read is refused before there is a session, with the status that says so"
ONCE = "a second handshake would change the client behind running calls"
FIXED = "unexpected errors have one code and one text; the SDK shows the exception's words under code 0"
DROPPED = "structuredContent that only the modern era allows is left out, so that the content still arrives"
MISMATCH = "header and body name two eras: that is the mismatch -32020 of the specification"
STRICT = "NaN is not JSON"
SHAPE = "what is not JSON-RPC is an invalid request (-32600); the SDK says invalid params, with pydantic's words"
ID = "an id of a wrong type is refused; the SDK takes the request for a notification and drops it"
META = "`_meta` is read before the method, to find the token"
BOTH = "an answer has a result or an error; the SDK accepts both and drops the message"
MEDIA = "415 is the status for a media type"
BODY = "refusals carry a JSON-RPC error with a code, so that clients can show the sentence"
HOST = "a Host that is missing or malformed is a bad request; 421 is for a name that is not ours"
AS_SENT = "results are not sieved by version: what a server sends in addition arrives"

DIFFERENCES: dict[str, Difference] = {
    "initialize without params": Difference(Seen(400, -32602, "error"), Seen(200, -32602, "error"), EARLY),
    "initialize without clientInfo": Difference(Seen(400, -32602, "error"), Seen(200, -32602, "error"), EARLY),
    "initialize in a session": Difference(
        Seen(400, -32600, "error"), Seen(200, None, "capabilities instructions protocolVersion serverInfo"), ONCE
    ),
    "legacy call that fails": Difference(Seen(200, -32603, "error"), Seen(200, 0, "error"), FIXED),
    "legacy call array structuredContent": Difference(Seen(200, None, "content"), Seen(200, -32603, "error"), DROPPED),
    "legacy with modern meta": Difference(Seen(400, -32020, "error"), Seen(200, None, "content isError"), MISMATCH),
    "NaN": Difference(Seen(400, -32700, "error"), Seen(200, None, ""), STRICT),
    "null": Difference(Seen(400, -32600, "error"), Seen(400, -32602, "error"), SHAPE),
    "number": Difference(Seen(400, -32600, "error"), Seen(400, -32602, "error"), SHAPE),
    "batch": Difference(Seen(400, -32600, "error"), Seen(400, -32602, "error"), SHAPE),
    "empty batch": Difference(Seen(400, -32600, "error"), Seen(400, -32602, "error"), SHAPE),
    "no jsonrpc": Difference(Seen(400, -32600, "error"), Seen(400, -32602, "error"), SHAPE),
    "wrong jsonrpc": Difference(Seen(400, -32600, "error"), Seen(400, -32602, "error"), SHAPE),
    "no method": Difference(Seen(400, -32600, "error"), Seen(400, -32602, "error"), SHAPE),
    "method as number": Difference(Seen(400, -32600, "error"), Seen(400, -32602, "error"), SHAPE),
    "null id": Difference(Seen(400, -32600, "error"), Seen(202, None, "nothing"), ID),
    "true id": Difference(Seen(400, -32600, "error"), Seen(202, None, "nothing"), ID),
    "fraction id": Difference(Seen(400, -32600, "error"), Seen(202, None, "nothing"), ID),
    "params as list": Difference(Seen(400, -32600, "error"), Seen(400, -32602, "error"), SHAPE),
    "meta as list": Difference(Seen(400, -32600, "error"), Seen(200, -32602, "error"), META),
    "result and error": Difference(Seen(400, -32600, "error"), Seen(202, None, "nothing"), BOTH),
    "text/plain": Difference(Seen(415, -32600, "error"), Seen(400, None, "text"), MEDIA),
    "no content type": Difference(Seen(415, -32600, "error"), Seen(400, None, "text"), MEDIA),
    "foreign host": Difference(Seen(421, -32600, "error"), Seen(421, None, "text"), BODY),
    "no host": Difference(Seen(400, -32600, "error"), Seen(421, None, "text"), HOST),
    "host with a path": Difference(Seen(400, -32600, "error"), Seen(421, None, "text"), HOST),
    "foreign origin": Difference(Seen(403, -32600, "error"), Seen(403, None, "text"), BODY),
    "modern call array structuredContent": Difference(
        Seen(200, None, "_meta content resultType structuredContent ttlMs"),
        Seen(200, None, "_meta content resultType structuredContent"),
        AS_SENT,
    ),
    "modern version header missing": Difference(Seen(400, -32020, "error"), Seen(400, -32600, "error"), MISMATCH),
    "modern GET": Difference(Seen(405, -32600, "error"), Seen(405, None, "nothing"), BODY),
    "modern DELETE": Difference(Seen(405, -32600, "error"), Seen(405, None, "nothing"), BODY),
    "modern accept JSON only": Difference(Seen(406, -32600, "error"), Seen(406, None, "nothing"), BODY),
    "modern text/plain": Difference(Seen(415, -32600, "error"), Seen(400, None, "text"), MEDIA),
}


async def seen(served: Served, request: Compared) -> Seen:
    session = await served.open_session() if request.in_session else []
    headers = [(name, value.replace("{port}", str(served.port))) for name, value in request.headers]
    answer = await served.send(
        as_bytes(request.body), verb=request.verb, headers=[*session, *headers], without=request.without
    )
    return Seen(answer.status, *_told(answer))


def _told(answer: Answer) -> tuple[int | None, str]:
    if not answer.body:
        return None, "nothing"
    if answer.headers.get("content-type", "text/plain").startswith("text/plain"):
        return None, "text"
    if "error" in answer.last:
        return answer.code, "error"
    kinds = [message["method"] for message in answer.messages[:-1]]
    return None, " ".join([*kinds, *sorted(answer.last["result"])])


async def test_the_fronts_agree_or_the_table_says_why_not() -> None:
    found = {}
    async with serving() as ours, sdk_serving(SmallGateway()) as theirs:
        for name, request in REQUESTS.items():
            mine, sdk = await seen(ours, request), await seen(theirs, request)
            if mine != sdk:
                found[name] = (mine, sdk)
    assert found == {name: (listed.ours, listed.sdk) for name, listed in DIFFERENCES.items()}


def test_the_table_lists_only_requests_that_are_sent() -> None:
    assert DIFFERENCES.keys() <= REQUESTS.keys()
    assert len(REQUESTS) >= 80
