"""The readers under test: bytes go in, and only the error that a reader declares may come out."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pointsman.config.errors import ConfigError, ConfigProblem
from pointsman.config.loader import parse as parse_config
from pointsman.core import wire
from pointsman.core.errors import DownstreamError
from pointsman.core.lines import LineAssembler
from pointsman.router.audit.database import FILE
from pointsman.router.audit.display import json_line
from pointsman.router.audit.query import read_rows
from pointsman.router.audit.segments import FOLDER, Segment, last_seq, list_segments, read_entries
from pointsman.router.audit.store import Store
from pointsman.router.clients.client_file import ClientFileError, changed, parsed
from pointsman.router.clients.dialects import Format
from pointsman.router.clients.found_servers import of_text
from pointsman.router.clients.import_plan import plan_import
from pointsman.router.downstream.connection import BudgetExceededError, ConnectionLostError
from pointsman.router.downstream.http.event_stream import EventStreamParser, ServerEvent
from pointsman.router.downstream.talk.decoding import decode, decode_in_pieces
from pointsman.router.front.http.http_request import echoed_id, parse_message
from pointsman.router.front.http.responses import HttpError
from tests.router.downstream.stdio_parts import tool_call
from tests.router.downstream.talk.test_multiplexer import Stream

CPU_S = 3.0  # for one input of a few kilobytes: a bound against work that grows without limit
_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True)
class Target:
    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]  # well-formed input to start from
    values: tuple[bytes, ...]  # what takes the place of a word in it
    syntax: tuple[bytes, ...]  # what is put in anywhere


def within_bounds(target: Target, data: bytes) -> None:
    """Raises whatever the reader should not have raised, and AssertionError where it worked for too long."""
    before_s = time.thread_time()
    target.run(data)
    spent_s = time.thread_time() - before_s
    assert spent_s < CPU_S, f"took {spent_s:.1f} s of CPU for {len(data)} bytes"


def front(data: bytes) -> None:
    """The body of a POST."""
    try:
        message = parse_message(data)
    except HttpError:
        return
    assert isinstance((message.get("params") or {}).get("_meta"), dict | None)
    assert type(echoed_id(message)) in (int, str) if "id" in message else echoed_id(message) is None
    assert wire.decode(wire.encode(message)) == message


def downstream(data: bytes) -> None:
    """What a stdio server writes, through the reader of lines into a connection with a call under way."""
    asyncio.run(_downstream(data))


async def _downstream(data: bytes) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    stream = Stream()
    call = await stream.start(tool_call("echo"))
    for line in _lines(data, len(data) or 1):
        stream.mux.receive(line)
        await asyncio.sleep(0)
    stream.mux.lost("the test is over")
    with suppress(ConnectionLostError, BudgetExceededError, DownstreamError):
        await call
    assert not failures, failures


def lines(data: bytes) -> None:
    """However the bytes are cut into chunks, the lines are the same."""
    assert _lines(data, len(data) or 1) == _lines(data, 1) == _lines(data, 7)


def _lines(data: bytes, chunk: int) -> list[bytes]:
    assembler = LineAssembler(_LIMIT_BYTES, lambda head, tail: None)
    found: list[bytes] = []
    for start in range(0, len(data), chunk):
        found.extend(bytes(line).removesuffix(b"\n") for line in assembler.feed(data[start : start + chunk]))
    return found


def json_in_pieces(data: bytes) -> None:
    """Large answers are decoded in pieces; the value is the same."""
    whole, pieces = _decoded(data, wire.decode), _decoded(data, decode_in_pieces)
    assert whole == pieces


def _decoded(data: bytes, how: Callable[[Any], Any]) -> Any:
    try:
        return decode(data, how)
    except wire.InvalidJsonError:
        return wire.InvalidJsonError


def events(data: bytes) -> None:
    """A server's event stream. However the bytes are cut, the events are the same."""
    assert _events(data, len(data) or 1) == _events(data, 1) == _events(data, 7)
    with suppress(BudgetExceededError):
        EventStreamParser(16).feed(data)


def _events(data: bytes, chunk: int) -> list[ServerEvent]:
    parser = EventStreamParser(_LIMIT_BYTES)
    pieces = (data[start : start + chunk] for start in range(0, len(data), chunk))
    return [event for piece in pieces for event in parser.feed(piece)]


def journal(data: bytes) -> None:
    """A segment of the audit journal: read, shown, moved into the database, and shown again."""
    with tempfile.TemporaryDirectory() as name:
        state = Path(name)
        folder = state / FOLDER
        folder.mkdir()
        segment = Segment.named(folder, "0000000000000001-5f3a9c21", 0, 1)
        segment.path.write_bytes(data)
        list(read_entries(segment.path))
        assert last_seq(folder) >= 0
        before = [row.seq for row in read_rows(state)]
        store = Store(state / FILE)
        store.move(folder, None)
        store.close()
        assert list_segments(folder) == [] or before == []
        after = list(read_rows(state))
        assert [row.seq for row in after] == before
        assert all(json_line(row) for row in after)


def configuration(data: bytes) -> None:
    """The YAML file of an operator."""
    problems: tuple[ConfigProblem, ...] | None = None
    try:
        parse_config(data.decode(errors="replace"), "pointsman.yaml", {"SET": "value"})
    except ConfigError as error:
        problems = error.problems
    assert problems is None or all(str(problem) for problem in problems)
    assert problems != ()


def client_file(data: bytes) -> None:
    """A client's file, or a text that somebody imports: read as all formats, and changed without a loss."""
    text = data.decode(errors="replace")
    with suppress(ClientFileError):
        plan = plan_import([of_text(text, "stdin", {})], "", Path("/nowhere/pointsman.yaml"), (), {})
        assert all(parse_config(json.dumps({"servers": {one: {"command": "x"}}}), "", {}) for one in plan.servers)
    for kind in get_args(Format):
        with suppress(ClientFileError):
            before = parsed(text, kind, "it")
            added = changed(text, kind, "mcpServers", "pointsman", {"url": "x"})
            assert parsed(added, kind, "it")["mcpServers"]["pointsman"] == {"url": "x"}
            after = parsed(changed(added, kind, "mcpServers", "pointsman", None), kind, "it")
            assert {**after, "mcpServers": None} == {**before, "mcpServers": None}


_CALL = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,-2.5e3,true,null,"\\u00e9"]},'
    b'"_meta":{"progressToken":1}}}'
)
_SMALL = (  # where the value that decides is a word, which is replaced as a whole
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":null}}',
    b'{"jsonrpc":"2.0","id":1,"result":null}',
)
_SERVER_SAYS = b"\n".join(
    (
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}',
        b'{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"well?"}}',
        b'{"jsonrpc":"2.0","id":"p","method":"ping"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}',
        b'[{"jsonrpc":"2.0","id":1,"result":{"content":[]}}]',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":{}}}',
        b"",
    )
)
_EVENTS = b"\xef\xbb\xbf: hello\r\nid: 7\nevent: message\ndata: {}\ndata: more\r\n\r\nretry: 10\n\ndata\n\nid\n\n"
_JOURNAL = (
    b'{"t":"intent","seq":1,"time_ms":1790000000000,"request_id":"r","kind":"execute","token":"a","client":"c",'
    b'"method":"tools/call","queries":["x"],"tool_key":"s:t","server_id":"s","arguments":{"a":1}}\n'
    b'{"t":"outcome","seq":1,"outcome":"ok","code":"c","ms":1.5,"results":1,"bytes":2,"provider":"p","fallback":true}\n'
)
_YAML = b"""\
listen: {host: 127.0.0.1, port: 8080}
projects: {demo: {optimization: bm25}}
servers:
  time: &time
    command: uvx
    args: [mcp-server-time, "${SET}"]
    env: {A: b}
    timeouts: {call_s: 5}
  web: {<<: *time, url: "https://host.example/mcp", headers: {X: "y"}}
tokens: {laptop: {sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08, projects: ["*"]}}
"""

_JSON_VALUES = (
    *(b"-1", b"0.5", b"1e999", b"1e-999", b"9" * 18, b"9" * 30, b"9" * 5000, b"null", b"true", b"NaN"),
    *(b'""', b"[]", b"{}"),
    *(b"[" * 3000 + b"]" * 3000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b'"\\ud800"', b'"\\u0000"', b'"\xed\xa0\x80"'),
    *(b'"id"', b'"seq"', b'"method"', b'"params"', b'"result"', b'"error"', b'"_meta"', b'"' + b"x" * 9000 + b'"'),
)
_JSON_SYNTAX = (b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"\n", b"\0", b"\xff", b'{"a":', b"[" * 500)
_EVENT_VALUES = (b"data", b"id", b"event", b"retry", b"id\0", b"9" * 12, b"\xff", b"\xef\xbb\xbf", b"x" * 300)
_EVENT_SYNTAX = (b"\r", b"\n", b"\r\n", b"\n\n", b"data:", b"id:", b"event:", b"retry:", b":", b" ")
_YAML_VALUES = (
    *(b"&a x", b"*a", b"*time", b"<<", b"[*time, *time]", b"{<<: *time}", b"!!binary x", b"!!set {x}", b"!x y"),
    *(b"~", b"''"),
    *(b"0x" + b"f" * 6000, b"9" * 6000, b"-1", b"1e999", b".nan", b".inf", b"2027-01-31", b"true"),
    *(b"[" * 40 + b"]" * 40,),
    *(b'"${SET}"', b'"${"', b'"${UNSET}"', b'"${SET:-x}"', b'"${file:no-such-file}"', b'"\\0"', b'"\\UFFFFFFFF"', b"*"),
    *(b"servers", b"tokens", b"port", b"url", b"command", b"bundled", b"x" * 9000),
)
_YAML_SYNTAX = (
    *(b"&a ", b"*a ", b"<<: *a\n", b"<<: *time\n", b"? ", b"- ", b": ", b"|\n", b">\n", b"'", b'"'),
    *(b"{", b"}", b"[", b"]"),
    *(b"[" * 40, b"---\n", b"%YAML 9.9\n", b"\t", b"\n", b"\n  ", b"\0", b"\x85", b"\xff", b"${", b"#"),
)

_CLIENT_FILES = (
    b'// mine\n{\n  "mcpServers": {\n    "time": {"command": "uvx", "env": {"A_KEY": "${env:B}"}}, // x\n  },\n}\n',
    b'[mcpServers.time]\nurl = "https://host.example/sse?key=1"\n\n# x\n[other]\na = 1\n',
    b"mcpServers:\n  # x\n  time: {cmd: uvx, args: [a], envs: {A: b}}\nother: 1\n",
    b'{"name":"a/b","packages":[{"registryType":"npm","identifier":"x","packageArguments":[{"name":"--a"}]}]}',
)

_JSON = (_JSON_VALUES, _JSON_SYNTAX)
TARGETS = {
    "front": Target(front, (_CALL, *_SMALL), *_JSON),
    "downstream": Target(downstream, (_SERVER_SAYS,), *_JSON),
    "lines": Target(lines, (_SERVER_SAYS,), *_JSON),
    "pieces": Target(json_in_pieces, (b'{"a":["' + b"x" * 140_000 + b'"],"b":{"c":[1,2.5,null]}}',), *_JSON),
    "events": Target(events, (_EVENTS,), _EVENT_VALUES, _EVENT_SYNTAX),
    "journal": Target(journal, (_JOURNAL,), *_JSON),
    "client files": Target(client_file, _CLIENT_FILES, (*_JSON_VALUES, *_YAML_VALUES), (*_JSON_SYNTAX, b"//", b"/*")),
    "configuration": Target(configuration, (_YAML,), _YAML_VALUES, _YAML_SYNTAX),
}
