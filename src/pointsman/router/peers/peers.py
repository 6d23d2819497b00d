"""Carries a client's message to the replica where the thing runs that it refers to.

A carried message is signed and served where it arrives, so it makes one hop at most. The receiving replica identifies
the caller again and applies its own rules: the hop gives no rights.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from pointsman.core.model import Json
from pointsman.router.peers.forwarding import (
    Headers,
    LostError,
    RefusedError,
    Request,
    UnreachableError,
    connected,
    forward,
    read_head,
    read_response,
)
from pointsman.router.peers.replica import Directory, Replica, rendezvous
from pointsman.router.peers.signing import HEADER, HeaderLines, Signing, has_digest, sent_on, target_of

PEER_HOST: Final = "pointsman"  # the Host of carried requests; their first replica has checked the client's
TELL_S: Final = 2.0  # for all replicas to hear of something
AT_ONCE_S: Final = 5.0  # for what a replica answers before it does any work
LOOK_S: Final = 1.0  # between looks whether the replicas live to which something is carried

logger = logging.getLogger(__name__)


class Peers:
    """The other replicas, as the front of this one uses them."""

    def __init__(self, own: Replica, directory: Directory, keys: Sequence[str]) -> None:
        self.own = own
        self.directory = directory
        self._signing = Signing(keys, own.id)
        self.heir_of: Callable[[str], str | None] = lambda replica_id: None
        """Which replica has the files of one that has ended; it answers from memory."""
        self._streams: set[asyncio.Future[None]] = set()  # GETs that are carried now
        self._carried: dict[asyncio.Future[None], Replica] = {}  # what is under way; done: its replica hangs
        self._watching: asyncio.Task[None] | None = None
        self._refused_by = ""  # the replica that last refused our signature

    @property
    def others(self) -> list[Replica]:
        return [replica for replica in self.directory.living() if replica.id != self.own.id]

    def find(self, replica_id: str) -> Replica | None:
        """Return another living replica by its id."""
        return next((replica for replica in self.others if replica.id == replica_id), None)

    def has_host(self, host: str) -> bool:
        """Return whether another replica is at this host: many clients' messages come over its connections."""
        if not self.own.address.startswith("tcp:"):
            return False
        return any(
            replica.address.removeprefix("tcp:").rpartition(":")[0].strip("[]") == host for replica in self.others
        )

    def report(self) -> Json:
        """For `/health`."""
        return {"this": self.own.id, "living": len(self.others) + 1}

    def verified(self, request: Request) -> bytes | None:
        """Return the digest of the body of a carried request, or None for a client's own. Raises ForgedError."""
        mark = [value for name, value in request.headers if name == HEADER]
        if not mark:
            return None
        target = target_of(request.path, request.query)
        return self.verified_mark(b" ".join(mark), request.verb, target, request.headers)

    def verified_mark(self, mark: bytes, verb: str, target: str, headers: HeaderLines) -> bytes:
        """Return the digest that the body must have. Raises ForgedError: no other replica has signed this."""
        return self._signing.verified(mark, verb, target, headers)

    @staticmethod
    def is_body(body: bytes, digest: bytes) -> bool:
        """Return whether a body has the digest that `verified` returned."""
        return has_digest(body, digest)

    async def carry(self, replica: Replica, request: Request, *, within_s: float | None = None) -> None:
        """Have the replica serve the request, and answer `within_s` if that is given.

        A replica that hangs is lost when it counts as gone.

        Raises UnreachableError, RefusedError, LostError: the client has no answer yet.
        """
        loop = asyncio.get_running_loop()
        ended, hangs = loop.create_future(), loop.create_future()
        if request.verb == "GET":
            self._streams.add(ended)
        self._carried[hangs] = replica
        if self._watching is None or self._watching.done():
            self._watching = loop.create_task(self._watch())
        try:
            await forward(replica, request, self._message(replica, request), ended, hangs, within_s)
            self._refused_by = ""
        except RefusedError:
            self._report_refusal(replica)
            raise
        finally:
            self._streams.discard(ended)
            del self._carried[hangs]

    async def carry_home(self, request: Request, key: str, home: str | None) -> bool:
        """Carry the request to `home`, or if that is gone to the first living replica in the order of `key`.

        False: that is this replica. Raises LostError.
        """
        opens = request.verb == "GET"
        ordered = rendezvous(key, self.directory.living())
        ordered.sort(key=lambda replica: replica.id != home)
        for replica in ordered:
            if replica.id == self.own.id:
                return False
            try:
                await self.carry(replica, request, within_s=AT_ONCE_S if opens else None)
            except UnreachableError:
                continue
            except LostError:
                # A stream can be opened elsewhere without harm; a subscription must be where the stream will be.
                if not opens and self.find(replica.id):
                    raise
                continue
            return True
        return False

    async def post(
        self, replica: Replica, path: str, body: bytes, *, within_s: float, most_bytes: int
    ) -> tuple[int, bytes]:
        """Ask the replica itself something, for no client. Return status and body of its answer.

        Raises UnreachableError, RefusedError, LostError, TimeoutError.
        """
        async with asyncio.timeout(within_s), connected(replica) as (reader, writer):
            writer.write(self._signed(replica, "POST", path, [], body))
            return await read_response(reader, most_bytes)

    async def tell_all(self, request: Request) -> None:
        """Have all other replicas serve the request, too, and wait for them a moment; their answers do not matter."""
        others = self.others
        if others:
            await asyncio.gather(*(self._tell(replica, request) for replica in others))

    def end_streams(self) -> None:
        """End the streams that are carried: their clients open new ones elsewhere."""
        for ended in self._streams:
            if not ended.done():
                ended.set_result(None)

    async def _watch(self) -> None:
        """Look for replicas that hang, while something is carried."""
        while self._carried:
            await asyncio.sleep(LOOK_S)
            living = {replica.id for replica in self.directory.living()}
            for replica in {one for one in self._carried.values() if one.id not in living}:
                if not await self._answers(replica):
                    logger.warning("replica %s hangs: what was carried to it is lost", replica.id)
                    for hangs in [each for each, at in self._carried.items() if at == replica and not each.done()]:
                        hangs.set_result(None)

    async def _answers(self, replica: Replica) -> bool:
        """After an outage of the database, all others seem to be gone for a moment."""
        try:
            async with asyncio.timeout(TELL_S), connected(replica) as (reader, writer):
                writer.write(f"GET /health HTTP/1.1\r\nhost: {PEER_HOST}\r\nconnection: close\r\n\r\n".encode())
                await read_head(reader)
        except RefusedError:
            return True
        except (UnreachableError, LostError, TimeoutError):
            return False
        return True

    async def _tell(self, replica: Replica, request: Request) -> None:
        try:
            async with asyncio.timeout(TELL_S), connected(replica) as (reader, writer):
                writer.write(self._message(replica, request))
                await read_head(reader)
        except RefusedError:
            self._report_refusal(replica)
        except (UnreachableError, LostError, TimeoutError):
            logger.warning("replica %s could not be told of a %s", replica.id, request.verb)

    def _report_refusal(self, replica: Replica) -> None:
        if self._refused_by != replica.id:
            logger.error(
                "replica %s refuses the signature of this one: compare the clocks and `state.request_keys` of both",
                replica.id,
            )
        self._refused_by = replica.id

    def _message(self, replica: Replica, request: Request) -> bytes:
        target, lines = target_of(request.path, request.query), sent_on(request.headers)
        return self._signed(replica, request.verb, target, lines, request.body)

    def _signed(self, replica: Replica, verb: str, target: str, lines: Headers, body: bytes) -> bytes:
        mark = self._signing.sign(replica.id, verb, target, lines, body)
        added = [(b"content-length", b"%d" % len(body)), (b"connection", b"close"), (HEADER, mark)]
        head = f"{verb} {target} HTTP/1.1\r\nhost: {PEER_HOST}\r\n".encode("latin-1")
        return head + b"".join(b"%b: %b\r\n" % line for line in (*lines, *added)) + b"\r\n" + body
