"""A small authorization server of another party: real HTTP, metadata, keys, and tokens that a test words itself."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa

Json = dict[str, Any]
PUBLIC_URL = "http://127.0.0.1:1"  # of the gateway, where a test does not start one
PATIENCE_S = 30.0


class Key:
    def __init__(self, key_id: str, algorithm: str, private: Any) -> None:
        self.id, self.algorithm, self.private = key_id, algorithm, private

    @property
    def public(self) -> Json:
        kinds = jwt.algorithms.get_default_algorithms()
        jwk: Json = kinds[self.algorithm].to_jwk(self.private.public_key(), as_dict=True)
        return {**jwk, "kid": self.id, "use": "sig", "alg": self.algorithm}


@cache
def rsa_key(key_id: str = "rsa", bits: int = 2048) -> Key:
    return Key(key_id, "RS256", generate_rsa(65537, bits))


@cache
def ec_key(key_id: str = "ec") -> Key:
    return Key(key_id, "ES256", generate_ec(SECP256R1()))


@cache
def ed_key(key_id: str = "ed") -> Key:
    return Key(key_id, "EdDSA", Ed25519PrivateKey.generate())


class Issuer:
    """`answers` maps a path to the body, or to a function that writes the whole response."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.keys = [ec_key()]
        self.asked: list[str] = []
        self.answers: dict[str, Json | Callable[[BaseHTTPRequestHandler], None]] = {}
        self.leave = threading.Event()  # lets slow answers end

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        found = self.answers.get(request.path, self._usual(request.path))
        if callable(found):
            found(request)
            return
        write(request, 404 if found is None else 200, found or {})

    def count(self, path: str) -> int:
        return self.asked.count(path)

    def claims(self, **changed: Any) -> Json:
        now = int(time.time())
        usual = {"iss": self.url, "aud": f"{PUBLIC_URL}/mcp", "sub": "alice", "exp": now + 600, "scope": "mcp"}
        return {name: value for name, value in {**usual, "groups": ["staff"], **changed}.items() if value is not None}

    def token(self, key: Key | None = None, header: Json | None = None, **changed: Any) -> str:
        """A token with the usual claims, and these; None leaves one out."""
        key = key or self.keys[0]
        head = {"kid": key.id, "typ": "at+jwt", **(header or {})}
        return jwt.encode(self.claims(**changed), key.private, key.algorithm, headers=head)

    def _usual(self, path: str) -> Json | None:
        if path == "/.well-known/oauth-authorization-server":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}
        return {"keys": [key.public for key in self.keys]} if path == "/jwks" else None


def write(request: BaseHTTPRequestHandler, status: int, body: Json | bytes, **headers: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request.send_response(status)
    for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(data)


@contextmanager
def issuing() -> Iterator[Issuer]:
    issuers: list[Issuer] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuers[0].answer(self)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class calls it
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuers.append(Issuer(server.server_port))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield issuers[0]
    finally:
        issuers[0].leave.set()
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)
