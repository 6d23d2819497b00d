"""What a query asks for, whoever answers it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Filters:
    """What documents must be. Within one kind any of the wanted will do, except tags: all of them are needed."""

    collections: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    not_collections: tuple[str, ...] = ()
    not_sources: tuple[str, ...] = ()
    not_tags: tuple[str, ...] = ()
    after: str | None = None  # on this day or later
    before: str | None = None  # earlier than this day
    hidden_collections: tuple[str, ...] = ()  # small ones, left out although the query did not ask for it


@dataclass(frozen=True, slots=True)
class Query:
    words: tuple[str, ...] = ()  # wanted; a repeated word is wanted more
    must: tuple[str, ...] = ()  # words and phrases that a passage has to have
    must_not: tuple[str, ...] = ()
    filters: Filters = field(default_factory=Filters)
    prose: str = ""  # all that is wanted, as it was written: what meaning is taken from
    notices: tuple[str, ...] = ()  # what was not understood or left out, for who asked

    @property
    def empty(self) -> bool:
        """Nothing is asked for that a passage could have."""
        return not self.words and not self.must
