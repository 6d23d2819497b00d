"""How a bundled server tells callers apart without learning who they are: by a keyed hash of token id and project."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pointsman.core.model import Caller
from pointsman.router.downstream.talk.request_meta import OWN_NAMESPACE

KEY = OWN_NAMESPACE + "caller"  # in `_meta` of a call
_PURPOSE = b"caller id"
_BYTES = 16


class CallerIds:
    """The same caller has the same id for as long as the first of the keys stays. The token's secret is not in it."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._key = hashlib.sha256(keys[0].encode()).digest()

    def of(self, caller: Caller) -> str:
        project = "" if caller.project_id is None else f"/{caller.project_id}"  # ids hold no slash
        named = f"{caller.token_id}{project}".encode()
        return hashlib.blake2b(named, key=self._key, digest_size=_BYTES, person=_PURPOSE).hexdigest()
