"""Reads from the environment which embedding provider to use, and creates it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args
from urllib.parse import urlsplit

from pointsman.archive.embedding.base import Embeddings

EMBEDDINGS = "POINTSMAN_ARCHIVE_EMBEDDINGS"
URL, MODEL, KEY, DIMENSIONS = (f"{EMBEDDINGS}_{name}" for name in ("URL", "MODEL", "KEY", "DIMENSIONS"))

Provider = Literal["static", "openai-compatible", "none"]
MOST_DIMENSIONS = 16_384


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server with OpenAI's `/embeddings` API."""

    url: str  # the base: `/embeddings` is appended
    model: str
    key: str | None = field(default=None, repr=False)
    dimensions: int | None = None  # to request; None: the model's own


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    provider: Provider = "static"
    endpoint: Endpoint | None = None  # of `openai-compatible`


def make_embeddings(settings: EmbeddingSettings) -> Embeddings | None:
    """None: the archive is searched by words alone."""
    if settings.provider == "none":
        return None
    if settings.provider == "static":
        from pointsman.archive.embedding.static import StaticEmbedding

        return StaticEmbedding()
    from pointsman.archive.embedding.remote import RemoteEmbedding

    assert settings.endpoint is not None
    return RemoteEmbedding(settings.endpoint)


def read_embeddings(environment: Mapping[str, str]) -> EmbeddingSettings:
    """Raises ValueError: a variable is invalid; the message names it."""
    match environment.get(EMBEDDINGS) or "static":
        case "static":
            return EmbeddingSettings("static")
        case "none":
            return EmbeddingSettings("none")
        case "openai-compatible":
            return EmbeddingSettings("openai-compatible", _read_endpoint(environment))
        case other:
            raise ValueError(f"{EMBEDDINGS} is `{other[:40]}`; it must be one of {', '.join(get_args(Provider))}")


def _read_endpoint(environment: Mapping[str, str]) -> Endpoint:
    url, model = environment.get(URL), environment.get(MODEL)
    if not url or not _is_address(url):
        raise ValueError(f"{EMBEDDINGS}=openai-compatible needs {URL}, like http://127.0.0.1:8080/v1")
    if not model:
        raise ValueError(f"{EMBEDDINGS}=openai-compatible needs {MODEL}, the name of the server's model")
    return Endpoint(url, model, environment.get(KEY) or None, _dimensions(environment.get(DIMENSIONS) or ""))


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _dimensions(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= MOST_DIMENSIONS:
        raise ValueError(f"{DIMENSIONS} is `{text[:40]}`; it must be a number from 1 to {MOST_DIMENSIONS}")
    return int(text)
