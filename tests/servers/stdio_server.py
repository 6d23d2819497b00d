"""A small MCP server on stdin and stdout, written without any library, that can misbehave in every way we know.

Command line switches say how it lives; the name of the called tool says how it answers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from typing import Any

MODERN, LEGACY = "2026-07-28", "2025-11-25"
NS = "io.modelcontextprotocol/"
INFO = {"name": "stdio-server", "version": "1"}
TOOLS = [{"name": "echo", "description": "Says it again", "inputSchema": {"type": "object"}}]
LARGE_TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("large", "half")]

Message = dict[str, Any]


class Server:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.seen: list[Message] = []  # everything that came in
        self.asked: dict[str, Any] = {}  # id of our question -> id of the call that it belongs to
        self.held: list[Any] = []  # calls that wait for `release`

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            self.seen.append(message)
            if "method" not in message:
                self.asker_answered(message)
            elif "id" in message:
                self.requested(message["method"], message.get("params") or {}, message["id"])

    # --- protocol

    def requested(self, method: str, params: Message, number: Any) -> None:
        if method == "server/discover" and self.options.era != "legacy":
            if self.options.discover_delay:
                time.sleep(self.options.discover_delay)
            self.answer(
                number,
                {
                    "resultType": "complete",
                    "supportedVersions": [MODERN],
                    "capabilities": {"tools": {"listChanged": True}},
                    "_meta": {NS + "serverInfo": INFO},
                },
            )
        elif method == "server/discover" and self.options.silent_probe:
            return
        elif method == "initialize" and self.options.era != "modern":
            version = self.options.version or params["protocolVersion"]
            self.answer(number, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": INFO})
        elif method == "tools/list":
            self.answer(number, {"tools": [*TOOLS, *LARGE_TOOLS] if self.options.large else TOOLS})
        elif method == "tools/call":
            tool = getattr(self, "tool_" + params["name"])
            tool(number, params.get("arguments") or {}, params)
        else:
            self.send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "Method not found"}})

    def answer(self, number: Any, result: Message) -> None:
        self.send({"jsonrpc": "2.0", "id": number, "result": result})

    def say(self, number: Any, text: str) -> None:
        self.answer(number, {"content": [{"type": "text", "text": text}]})

    def notify(self, method: str, params: Message) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def send(self, message: Message) -> None:
        self.raw(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    # --- tools that behave

    def tool_echo(self, number: Any, arguments: Message, params: Message) -> None:
        self.answer(
            number, {"content": [], "structuredContent": {"arguments": arguments, "_meta": params.get("_meta")}}
        )

    def tool_seen(self, number: Any, arguments: Message, params: Message) -> None:
        self.answer(number, {"content": [], "structuredContent": {"seen": self.seen}})

    def tool_hold(self, number: Any, arguments: Message, params: Message) -> None:
        self.held.append(number)

    def tool_release(self, number: Any, arguments: Message, params: Message) -> None:
        for held in self.held:
            self.say(held, "released")
        self.held.clear()
        self.say(number, "done")

    def tool_environment(self, number: Any, arguments: Message, params: Message) -> None:
        handles = sorted(int(name) for name in os.listdir("/proc/self/fd"))
        facts = {"env": dict(os.environ), "fds": handles, "pid": os.getpid(), "sid": os.getsid(0), "cwd": os.getcwd()}
        self.answer(number, {"content": [], "structuredContent": facts})

    def tool_progress(self, number: Any, arguments: Message, params: Message) -> None:
        token = (params.get("_meta") or {}).get("progressToken", "none given")
        for step in range(3):
            self.notify("notifications/progress", {"progressToken": token, "progress": step})
        self.say(number, "done")

    def tool_log(self, number: Any, arguments: Message, params: Message) -> None:
        for level in ("debug", "info", "error"):
            self.notify("notifications/message", {"level": level, "data": level})
        self.say(number, "done")

    def tool_changed(self, number: Any, arguments: Message, params: Message) -> None:
        self.notify("notifications/tools/list_changed", {})
        self.say(number, "done")

    def tool_ask(self, number: Any, arguments: Message, params: Message) -> None:
        """Puts the question `arguments.method` and answers the call with whatever came back."""
        key = f"question-{len(self.seen)}"
        self.asked[key] = number
        self.send({"jsonrpc": "2.0", "id": key, "method": arguments["method"], "params": {"message": "well?"}})

    def asker_answered(self, message: Message) -> None:
        number = self.asked.pop(message["id"], None)
        if number is not None:
            self.answer(number, {"content": [], "structuredContent": {"answer": message}})

    def tool_ask_and_withdraw(self, number: Any, arguments: Message, params: Message) -> None:
        self.tool_ask(number, {"method": "elicitation/create"}, params)
        self.notify("notifications/cancelled", {"requestId": next(reversed(self.asked))})

    def tool_ask_and_leave(self, number: Any, arguments: Message, params: Message) -> None:
        self.tool_ask(number, {"method": "elicitation/create"}, params)
        self.say(number, "never mind")

    def tool_stderr(self, number: Any, arguments: Message, params: Message) -> None:
        sys.stderr.write(arguments["text"])
        sys.stderr.flush()
        self.say(number, "written")

    # --- tools that do not

    def tool_refuse(self, number: Any, arguments: Message, params: Message) -> None:
        error = {"code": -32055, "message": "no such luck", "data": {"why": 1}}
        self.send({"jsonrpc": "2.0", "id": number, "error": error})

    def tool_crash(self, number: Any, arguments: Message, params: Message) -> None:
        sys.stderr.write("Traceback\nValueError: boom in /very/private/place.py\n")
        sys.stderr.flush()
        os._exit(arguments.get("code", 3))

    def tool_killed(self, number: Any, arguments: Message, params: Message) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def tool_answer_and_exit(self, number: Any, arguments: Message, params: Message) -> None:
        self.say(number, "last words")
        os._exit(0)

    def tool_close_stdout(self, number: Any, arguments: Message, params: Message) -> None:
        os.close(1)

    def tool_hang(self, number: Any, arguments: Message, params: Message) -> None:
        """Never answers this one; others go on."""

    def tool_deaf(self, number: Any, arguments: Message, params: Message) -> None:
        """Reads nothing any more."""
        self.say(number, "deaf from now on")
        while True:
            time.sleep(3600)

    def tool_garbage(self, number: Any, arguments: Message, params: Message) -> None:
        self.raw(b'INFO starting\n\x1b[31mred\x1b[0m\n{"half":\n[]\n17\nnull\n\xff\xfe\xfd\n{"jsonrpc":"2.0"}\n\n')
        self.raw(b'{"jsonrpc":"2.0","method":7}\n{"jsonrpc":"2.0","id":{},"result":{}}\n' + b"[" * 5000 + b"\n")
        self.say(number, "done")

    def tool_bad_utf8(self, number: Any, arguments: Message, params: Message) -> None:
        self.raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\xff"}]}}\n' % number)

    def tool_foreign(self, number: Any, arguments: Message, params: Message) -> None:
        for wrong in (number + 1000, str(number), None, number * 1.0, True, [number]):
            self.answer(wrong, {"content": [], "structuredContent": {"wrong": True}})
        self.say(number, "mine")
        self.say(number, "mine again")

    def tool_no_result(self, number: Any, arguments: Message, params: Message) -> None:
        self.send({"jsonrpc": "2.0", "id": number})

    def tool_batch(self, number: Any, arguments: Message, params: Message) -> None:
        text = {"content": [{"type": "text", "text": "in a batch"}]}
        answers = [
            {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
            {"jsonrpc": "2.0", "id": number, "result": text},
        ]
        self.raw(json.dumps(answers).encode() + b"\n")

    def tool_large(self, number: Any, arguments: Message, params: Message) -> None:
        """An answer of `bytes` bytes, then a small notification that must not overtake it."""
        self.say(number, "x" * arguments["bytes"])
        self.notify("notifications/after", {})

    def tool_half(self, number: Any, arguments: Message, params: Message) -> None:
        """The first `bytes` bytes of an answer that never ends."""
        self.raw((b'{"jsonrpc":"2.0","id":%d,"result":{"x":"' % number) + b"y" * arguments["bytes"])

    def tool_huge(self, number: Any, arguments: Message, params: Message) -> None:
        """A line of `bytes` bytes that is never held whole here either; `id` at its head, its tail or nowhere."""
        where = arguments.get("id", "head")
        self.raw((b'{"jsonrpc":"2.0","id":%d,"result":{"x":"' % number) if where == "head" else b'{"result":{"x":"')
        for _ in range(arguments["bytes"] >> 16):
            self.raw(b"y" * 65536)
        self.raw(b'"},"jsonrpc":"2.0","id":%d}\n' % number if where == "tail" else b'"}}\n')

    def tool_flood(self, number: Any, arguments: Message, params: Message) -> None:
        token = (params.get("_meta") or {}).get("progressToken")
        line = json.dumps({"jsonrpc": "2.0", "method": arguments["method"], "params": {"progressToken": token}})
        for _ in range(arguments["count"]):
            sys.stdout.buffer.write(line.encode() + b"\n")
        self.say(number, "flooded")

    def tool_flood_stderr(self, number: Any, arguments: Message, params: Message) -> None:
        for _ in range(arguments["bytes"] >> 16):
            sys.stderr.buffer.write(b"z" * 65535 + b"\n")
        sys.stderr.buffer.flush()
        self.say(number, "done")


def grandchild(detached: bool) -> int:
    """A process that holds our pipes, and ends for nothing but SIGKILL."""
    import subprocess  # here, because most starts do not need it

    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(end='', flush=True); time.sleep(600)"
    )
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", code], start_new_session=detached).pid


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--era", choices=("legacy", "modern", "both"), default="legacy")
    parser.add_argument("--version", help="the protocol version to answer initialize with")
    parser.add_argument("--silent-probe", action="store_true", help="never answer server/discover")
    parser.add_argument("--discover-delay", type=float, default=0)
    parser.add_argument("--banner", action="store_true")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--ignore-eof", action="store_true")
    parser.add_argument("--grandchild", choices=("group", "detached"))
    parser.add_argument("--pids", help="file to write our process ids to")
    parser.add_argument("--exit", type=int, help="exit at once with this code")
    parser.add_argument("--large", action="store_true", help="list the tools `large` and `half` as well")
    parser.add_argument("--mute", action="store_true", help="answer nothing at all")
    options = parser.parse_args()
    if options.exit is not None:
        sys.stderr.write("no configuration found\n")
        sys.exit(options.exit)
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = [os.getpid()]
    if options.grandchild:
        pids.append(grandchild(options.grandchild == "detached"))
    if options.pids:
        with open(options.pids + ".new", "w") as file:
            file.write(" ".join(map(str, pids)))
        os.rename(options.pids + ".new", options.pids)
    if options.banner:
        sys.stdout.buffer.write("Welcome to the server ✨\n{not json}\n".encode() + b"\xff\xff\n")
        sys.stdout.buffer.flush()
    if options.mute:
        time.sleep(600)
    Server(options).serve()
    while options.ignore_eof:
        time.sleep(600)


if __name__ == "__main__":
    main()
