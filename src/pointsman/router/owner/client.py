"""The commands' side of the owner's channel: sends one request to the running gateway and waits for its answer.

Plain sockets and the standard library only, because shell completion runs it at each key press.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pointsman.router.owner.socket_file import MAX_REQUEST_BYTES, REPLICAS, connect, places
from pointsman.router.serving.unix_address import SocketPathError

CONNECT_S = 5.0
ALIVE_S = 5.0  # for a gateway to say that it is there, which it does at once
ANSWER_S = 60.0
MAX_ANSWER_BYTES = 64 << 20
LOG_STEP = "`pointsman log` may say why; if it hangs, end it and start it again"


class NoGatewayError(Exception):
    """No gateway answers for the state folder. `str(error)` is shown to the person at the terminal."""


class SilentGatewayError(NoGatewayError):
    """A gateway has the state folder, and does not answer."""


class OperationError(Exception):
    """The gateway refused an operation. `str(error)` is its sentence for the person."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def ask(folder: Path, operation: str, /, *, timeout_s: float = ANSWER_S, **parameters: Any) -> Any:
    """Return the result of an operation of the gateway that uses this state folder.

    A gateway that hangs is noticed within seconds, however long the operation may take. Of replicas that share the
    folder, the first one that answers is asked.

    Raises:
        NoGatewayError: none runs.
        SilentGatewayError: it gives no answer.
        OperationError: it refused, or the request cannot be sent.
    """
    request = _encoded(operation, parameters)
    if timeout_s > ALIVE_S:
        folder = _answering(folder)
    return _exchange(folder, request, timeout_s)


def _answering(folder: Path) -> Path:
    """Return where a gateway of this folder answers. Raises NoGatewayError, SilentGatewayError."""
    failures: list[NoGatewayError] = []
    for place in places(folder):
        try:
            with suppress(OperationError):  # any answer will do
                _exchange(place, _encoded("about", {}), ALIVE_S)
        except NoGatewayError as error:
            failures.append(error)
        else:
            return place
    if text := _silent_workers(folder):
        raise SilentGatewayError(text)
    raise next((error for error in failures if isinstance(error, SilentGatewayError)), failures[0])


def _silent_workers(folder: Path) -> str:
    """What the parent of workers knows of them, none of which answers; empty: there is no such gateway."""
    if not (folder / REPLICAS).is_dir():
        return ""
    from pointsman.router.serving.workers_file import none_answers, read_note  # for few gateways

    note = read_note(folder)
    return none_answers(note) if note is not None else ""


def _exchange(folder: Path, request: bytes, timeout_s: float) -> Any:
    """Raises as `ask`."""
    try:
        with connect(folder, CONNECT_S) as connection:
            connection.sendall(request)
            answer = json.loads(_read_line(connection, time.monotonic() + timeout_s))
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as error:
        raise NoGatewayError(
            f"No gateway runs with the state folder {folder}. `pointsman serve` starts one."
        ) from error
    except PermissionError as error:
        raise SilentGatewayError(
            f"The gateway with the state folder {folder} belongs to another user. Run this command as that user."
        ) from error
    except TimeoutError as error:
        raise SilentGatewayError(
            f"The gateway with the state folder {folder} gave no answer within {timeout_s:g} s. {LOG_STEP}."
        ) from error
    except SocketPathError as error:
        raise NoGatewayError(str(error)) from error
    except (OSError, ValueError) as error:
        raise SilentGatewayError(
            f"The gateway with the state folder {folder} ended the connection without an answer. {LOG_STEP}."
        ) from error
    if "error" in answer:
        raise OperationError(answer["error"]["code"], answer["error"]["message"])
    return answer["result"]


def _encoded(operation: str, parameters: dict[str, Any]) -> bytes:
    """Raises OperationError: the gateway would not read it."""
    try:
        text = json.dumps({"operation": operation, "parameters": parameters}, ensure_ascii=False, allow_nan=False)
        request = text.encode() + b"\n"
    except UnicodeEncodeError:
        raise OperationError("invalid_request", "What was given is not UTF-8 text; nothing was sent.") from None
    except ValueError:
        raise OperationError("invalid_request", "JSON has no numbers such as NaN and Infinity.") from None
    if len(request) > MAX_REQUEST_BYTES:
        raise OperationError(
            "invalid_request",
            f"What was given takes {len(request)} bytes, and a command can send {MAX_REQUEST_BYTES}. "
            "Send less, or call the gateway over HTTP.",
        )
    return request


def _read_line(connection: socket.socket, deadline: float) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while not chunks or not chunks[-1].endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        chunk = connection.recv(1 << 16)
        size += len(chunk)
        if not chunk or size > MAX_ANSWER_BYTES:
            raise ValueError("no complete answer")
        chunks.append(chunk)
    return b"".join(chunks)
