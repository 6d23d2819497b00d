"""A query parsed into sentences and tokens, and the synonyms of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from pointsman.providers.text import STOP_WORDS, calm, has_cjk, sentences, stem, without_cjk, words

MAX_CHARS = 8_000  # as many as a discovery takes
MAX_PARTS = 12
MAX_WORDS = 2_000  # distinct ones, of all texts of a request together: each costs a stemming and a look-up
PAIR_LENGTH = 0.5  # the length in words of two characters of CJK text: every other pair spans two words
SYNONYM_WEIGHT = 0.25  # of a synonym, relative to the word itself


@dataclass(frozen=True, slots=True)
class Query:
    """A text and its sentences, each of which may ask for something else."""

    tokens: dict[str, str]  # each token once, with the word that it came from
    texts: tuple[str, ...]  # its sentences
    parts: tuple[frozenset[str], ...]  # their tokens
    length: float  # in words
    embedded: tuple[str, ...]  # its sentences as they are embedded; empty: search by words alone


def parse_all(texts: Sequence[str]) -> list[Query]:
    """Parse each text with its share of MAX_WORDS; the unused rest of a share goes to the texts after it."""
    parsed: list[Query] = []
    room = MAX_WORDS
    for place, text in enumerate(texts):
        parsed.append(parse(text, room // (len(texts) - place)))
        room -= len(parsed[-1].tokens)
    return parsed


def parse(text: str, room: int = MAX_WORDS) -> Query:
    """Parse a text up to `room` distinct words."""
    text = text[:MAX_CHARS]
    pieces = sentences(text)
    pieces[MAX_PARTS - 1 :] = [" ".join(pieces[MAX_PARTS - 1 :])]  # the rest is one more part
    tokens: dict[str, str] = {}
    parts: list[frozenset[str]] = []
    texts: list[str] = []
    for piece in pieces:
        part = set()
        for word in words(piece):
            if len(tokens) >= room:
                break
            if word not in STOP_WORDS:
                token = stem(word)
                tokens.setdefault(token, word)
                part.add(token)
        if part:
            parts.append(frozenset(part))
            texts.append(piece)
    length = sum([PAIR_LENGTH if has_cjk(token) else 1 for token in tokens])
    return Query(tokens, tuple(texts), tuple(parts), length, _embeddable(texts))


def _embeddable(texts: Sequence[str]) -> tuple[str, ...]:
    """The sentences without CJK text, which the model hardly covers; empty if that is most of the text."""
    whole = [calm(text) for text in texts]
    return tuple(map(without_cjk, whole)) if without_cjk(" ".join(whole)) else ()


# Words that people use for one another when they ask for a tool.
_GROUPS = """
    delete remove erase
    create add make new
    find search lookup query
    get fetch retrieve read obtain
    list show display
    update edit modify change
    send post submit
    start launch run begin
    stop cancel end
    check verify validate
    convert translate transform
    calculate compute
    summarize summary
    analyze analysis
    download save
    upload import
    buy purchase order
    price cost fee
    money currency cash
    shop store
    product item
    company business firm
    stock share equity
    crypto cryptocurrency bitcoin
    image picture photo
    video clip
    movie film
    song music track
    tv television show
    game gaming
    book ebook novel
    news article headline
    mail email message
    chat talk conversation
    meeting appointment event calendar
    schedule plan itinerary
    task todo
    bug issue ticket
    error exception bug
    repo repository
    code program script
    database db sql
    document file doc pdf
    website site webpage page web
    url link
    chart graph plot diagram
    user account member
    information info detail
    number count
    history past
    location place address
    nearby near close
    map route direction navigation
    trip travel vacation
    holiday vacation
    hotel accommodation lodging
    flight airline plane
    car vehicle
    house home property estate
    weather forecast climate
    recipe cooking meal dish food
    restaurant dining
    exercise workout fitness
    doctor physician
    drug medicine medication
    job career work
    law legal
    test exam quiz
    gift present
"""


def synonyms_of(token: str) -> tuple[str, ...]:
    """The tokens that may stand for a token."""
    return _table().get(token, ())


@cache
def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    for line in _GROUPS.strip().splitlines():
        group = [stem(word) for word in line.split()]
        for token in group:
            table.setdefault(token, {}).update((other, None) for other in group if other != token)
    return {token: tuple(others) for token, others in table.items()}
