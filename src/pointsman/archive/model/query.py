"""A parsed query."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on documents. Any of several collections or sources is enough; all tags are required."""

    collections: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    not_collections: tuple[str, ...] = ()
    not_sources: tuple[str, ...] = ()
    not_tags: tuple[str, ...] = ()
    after: str | None = None  # on this day or later
    before: str | None = None  # earlier than this day
    hidden_collections: tuple[str, ...] = ()  # small ones, excluded unless the query names them


@dataclass(frozen=True, slots=True)
class Query:
    words: tuple[str, ...] = ()  # optional; a repeated word weighs more
    must: tuple[str, ...] = ()  # words and phrases that a passage must have
    must_not: tuple[str, ...] = ()
    filters: Filters = field(default_factory=Filters)
    prose: str = ""  # the wanted text as written, for the embedding
    notices: tuple[str, ...] = ()  # for the caller: what was not understood or dropped

    @property
    def empty(self) -> bool:
        """Whether it has no words to search for."""
        return not self.words and not self.must
