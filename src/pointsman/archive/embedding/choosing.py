"""The provider that the settings ask for."""

from __future__ import annotations

from pointsman.archive.embedding.base import Embeddings
from pointsman.archive.embedding.settings import EmbeddingSettings


def make_embeddings(settings: EmbeddingSettings) -> Embeddings | None:
    """None: the archive is searched by words alone."""
    if settings.provider == "none":
        return None
    if settings.provider == "static":
        from pointsman.archive.embedding.static import StaticEmbedding

        return StaticEmbedding()
    from pointsman.archive.embedding.remote import Endpoint, RemoteEmbedding

    assert settings.url is not None
    assert settings.model is not None
    return RemoteEmbedding(Endpoint(settings.url, settings.model, settings.key, settings.dimensions))
