"""`python -m bench.servers.stdio`: a trivial MCP server over stdio."""

from __future__ import annotations

import os

from bench.servers.answers import Answers, decode


def main() -> None:
    answers = Answers()
    rest = b""
    while data := os.read(0, 65_536):
        *lines, rest = (rest + data).split(b"\n")
        replies = [answers.answer(decode(line)) for line in lines]
        _write(b"".join(reply + b"\n" for reply in replies if reply is not None))


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
