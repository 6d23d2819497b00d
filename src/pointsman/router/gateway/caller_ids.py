"""Who calls, as bundled servers are told it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pointsman.core.model import Caller
from pointsman.router.downstream.talk.request_meta import OWN_NAMESPACE

CALLER_KEY = OWN_NAMESPACE + "caller"  # in `_meta` of a call to a bundled server
_CALLER_ID_PURPOSE = b"caller id"
_CALLER_ID_BYTES = 16


class CallerIds:
    """Opaque ids by which a bundled server tells callers apart: a keyed hash of token id and project.

    They are stable for as long as the first key stays, and contain nothing of the token's secret.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._key = hashlib.sha256(keys[0].encode()).digest()

    def of(self, caller: Caller) -> str:
        project = "" if caller.project_id is None else f"/{caller.project_id}"  # ids contain no slash
        named = f"{caller.token_id}{project}".encode()
        digest = hashlib.blake2b(named, key=self._key, digest_size=_CALLER_ID_BYTES, person=_CALLER_ID_PURPOSE)
        return digest.hexdigest()
