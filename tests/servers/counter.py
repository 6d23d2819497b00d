"""A server on stdin and stdout that keeps something in its process: how often it was called. The standard library only.

`count` answers with the process and the number of this call. `wait` answers as soon as there is a file at `path`.
A line for each call, with its process, is added to the file of the command line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

Message = dict[str, Any]
TOOLS = [
    {"name": name, "inputSchema": {"type": "object", "properties": {"tag": {"type": "string"}}}}
    for name in ("count", "wait", "die")
]


class Counter:
    def __init__(self, trace: Path) -> None:
        self._trace = trace
        self._count = 0

    async def call(self, params: Message) -> Message:
        arguments = params.get("arguments") or {}
        with self._trace.open("a") as file:
            file.write(f"{params['name']} {arguments.get('tag', '')} {os.getpid()}\n")
        self._count += 1
        number = self._count
        if params["name"] == "die":
            os._exit(3)
        while params["name"] == "wait" and not Path(arguments["path"]).exists():
            await asyncio.sleep(0.02)
        return {"content": [{"type": "text", "text": f"{os.getpid()} {number}"}]}

    async def answer(self, message: Message) -> Message:
        method = message["method"]
        if method == "initialize":
            info = {"name": "counter", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            return {"tools": TOOLS}
        return await self.call(message["params"]) if method == "tools/call" else {}


async def serve(counter: Counter) -> None:
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running = set()

    async def run(message: Message) -> None:
        result = await counter.answer(message)
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
        sys.stdout.flush()

    while line := await reader.readline():
        message = json.loads(line)
        if "id" in message and "method" in message:
            task = asyncio.ensure_future(run(message))
            running.add(task)
            task.add_done_callback(running.discard)


if __name__ == "__main__":
    asyncio.run(serve(Counter(Path(sys.argv[1]))))
