"""Embeddings from any server with OpenAI's `/embeddings` API: batched, deduplicated, retried with backoff."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import httpx2

from pointsman.archive.embedding.base import MAX_CHARS, PROBE_DEADLINE_S, EmbeddingError
from pointsman.archive.embedding.settings import Endpoint
from pointsman.archive.store.base import Space
from pointsman.providers.embeddings import load_numpy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH = 64
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 20.0
_ATTEMPT_S = 30.0
_MOST_BYTES = 67_108_864
_PROBE = "pointsman"
_RETRYABLE = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    wait_s: float  # before the next request, from Retry-After
    body: bytes


class RemoteEmbedding:
    """Fits `Embeddings`."""

    remote = True

    def __init__(self, endpoint: Endpoint, *, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self._endpoint = endpoint
        self._first_pause_s = first_pause_s
        self._dimension = endpoint.dimensions
        self._closing = threading.Event()
        headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        self._client = httpx2.Client(headers=headers, timeout=_ATTEMPT_S)

    def space(self, *, deadline_s: float = PROBE_DEADLINE_S) -> Space:
        if self._dimension is None:
            self.embed([_PROBE], deadline_s=deadline_s)
        assert self._dimension is not None
        return Space("openai-compatible", self._endpoint.model, self._dimension)

    def embed(self, texts: Sequence[str], *, deadline_s: float) -> NDArray[np.float32]:
        load_numpy()
        import numpy as np

        deadline = monotonic() + deadline_s
        cut = [text.strip()[:MAX_CHARS] for text in texts]
        distinct = [
            text for text in dict.fromkeys(cut) if text
        ]  # servers reject empty texts, and equal ones cost twice
        rows: dict[str, NDArray[np.float32]] = {}
        for start in range(0, len(distinct), BATCH):
            batch = distinct[start : start + BATCH]
            rows.update(zip(batch, self._normalize(self._request(batch, deadline)), strict=True))
        zeros = np.zeros(self._dimension or 0, dtype=np.float32)
        return np.stack([rows.get(text, zeros) for text in cut]) if cut else np.zeros((0, 0), dtype=np.float32)

    def rest(self) -> None:
        pass

    def close(self) -> None:
        self._closing.set()
        self._client.close()

    def _normalize(self, vectors: list[list[float]]) -> NDArray[np.float32]:
        import numpy as np

        from pointsman.providers.embeddings import unit

        try:
            with np.errstate(over="ignore"):  # too large a number becomes infinite, which is rejected below
                matrix = np.array(vectors, dtype=np.float32)
        except (ValueError, TypeError):
            raise EmbeddingError("The embedding server returned vectors that are not rows of numbers.") from None
        if matrix.ndim != 2 or not matrix.shape[1] or not np.isfinite(matrix).all():
            raise EmbeddingError("The embedding server returned vectors that are not rows of numbers.")
        if self._dimension is not None and matrix.shape[1] != self._dimension:
            raise EmbeddingError(
                f"The embedding server returned {matrix.shape[1]} dimensions instead of {self._dimension}. "
                "Set POINTSMAN_ARCHIVE_EMBEDDINGS_DIMENSIONS to the dimensions of the model."
            )
        self._dimension = int(matrix.shape[1])
        return unit(matrix)

    def _request(self, texts: list[str], deadline: float) -> list[list[float]]:
        """Retry with backoff until there is an answer, a final error, or the deadline."""
        pause_s = self._first_pause_s
        result: list[list[float]] | str = "The embedding server was not called: no time was left."
        while monotonic() < deadline and not self._closing.is_set():
            result, wait_s = self._attempt(texts, deadline)
            if isinstance(result, list):
                return result
            wait_s = min(max(wait_s, pause_s), LONGEST_PAUSE_S)
            if monotonic() + wait_s >= deadline:
                break
            self._closing.wait(wait_s)
            pause_s *= 2
        raise EmbeddingError(result)

    def _attempt(self, texts: list[str], deadline: float) -> tuple[list[list[float]] | str, float]:
        """The vectors, or why to retry and how long the server asks to wait.

        Raises:
            EmbeddingError: retrying does not help.
        """
        request: dict[str, Any] = {"model": self._endpoint.model, "input": texts, "encoding_format": "float"}
        if self._endpoint.dimensions is not None:
            request["dimensions"] = self._endpoint.dimensions
        try:
            reply = self._post(request, deadline)
        except httpx2.HTTPError as error:
            return f"The embedding server cannot be reached ({type(error).__name__}).", 0.0
        except (httpx2.InvalidURL, RuntimeError) as error:
            raise EmbeddingError(f"The embedding server cannot be called ({type(error).__name__}).") from error
        if reply.status in _RETRYABLE:
            return f"The embedding server answered {reply.status}.", reply.wait_s
        if reply.status in (401, 403):
            raise EmbeddingError(
                f"The embedding server rejected the key ({reply.status}). Check POINTSMAN_ARCHIVE_EMBEDDINGS_KEY."
            )
        if reply.status != 200:
            raise EmbeddingError(f"The embedding server answered {reply.status}: {self._redacted(reply.body)!r}.")
        return _vectors(reply.body, len(texts)), 0.0

    def _post(self, request: dict[str, Any], deadline: float) -> _Reply:
        """Check the deadline with each piece of the body: the client's own timeout restarts with every piece."""
        url = f"{self._endpoint.url.rstrip('/')}/embeddings"
        left_s = max(0.001, min(deadline - monotonic(), _ATTEMPT_S))
        body = bytearray()
        with self._client.stream("POST", url, json=request, timeout=left_s) as response:
            for piece in response.iter_bytes():
                body += piece
                if len(body) > _MOST_BYTES or monotonic() > deadline or self._closing.is_set():
                    raise EmbeddingError("The embedding server's answer is too slow or too large.")
            return _Reply(response.status_code, _retry_after(response), bytes(body))

    def _redacted(self, body: bytes) -> str:
        """Without the key: some servers echo the request."""
        text = body.decode(errors="replace")
        return (text.replace(self._endpoint.key, "***") if self._endpoint.key else text)[:200]


def _retry_after(response: httpx2.Response) -> float:
    try:
        return max(0.0, float(response.headers.get("Retry-After", "0")))
    except ValueError:  # a date: our own backoff applies
        return 0.0


def _vectors(body: bytes, count: int) -> list[list[float]]:
    try:
        data = sorted(json.loads(body)["data"], key=lambda item: item["index"])
        vectors = [item["embedding"] for item in data]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise EmbeddingError("The embedding server's answer does not follow OpenAI's API.") from None
    if len(vectors) != count:
        raise EmbeddingError(f"The embedding server returned {len(vectors)} vectors for {count} texts.")
    return vectors
