"""Words that people use for one another when they ask for a tool."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from pointsman.providers.text import stem

SAME_WEIGHT = 0.75  # of a word that means the same, relative to the word itself
RELATED_WEIGHT = 0.25  # of a word that often stands for it

_SAME = """
    delete remove erase wipe purge destroy
    calculate compute
    summarize summary
    analyze analysis
    buy purchase
    image picture photo
    movie film
    tv television
    mail email
    task todo
    repo repository
    database db
    folder directory
    section chapter
    usage reference caller
    now current today
    website site webpage
    information info
    car vehicle
    doctor physician
    medicine medication
    hotel accommodation lodging
    crypto cryptocurrency
    undo revert
    regex regexp
    code codebase
    history log
    echo repeat
"""
_RELATED = """
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
    download save fetch
    save write store keep note
    upload import
    order buy
    price cost fee
    money currency cash
    shop store
    product item
    company business firm
    stock share equity
    crypto bitcoin
    video clip
    song music track
    tv show
    game gaming
    book ebook novel
    news article headline
    mail message
    chat talk conversation
    meeting appointment event calendar
    schedule plan itinerary
    bug issue ticket
    error exception bug
    code program script
    database sql
    document file doc pdf
    website web
    website page
    url link page address
    chart graph plot diagram
    user account member
    information detail
    number count
    history past log
    location place address
    nearby near close
    map route direction navigation
    trip travel vacation
    holiday vacation
    flight airline plane
    house home property estate
    weather forecast climate
    recipe cooking meal dish food
    restaurant dining
    exercise workout fitness
    drug medicine
    job career work
    law legal
    test exam quiz
    gift present

    rename move
    difference diff change compare
    undo restore reset rollback discard
    copy duplicate clone
    zip compress archive
    unzip extract decompress
    screenshot capture
    command shell terminal
    visit open navigate browse go
    click press tap hit
    type enter fill
    column field schema
    row record insert
    spreadsheet sheet excel
    note memo
    reply respond answer comment
    remember memory store save knowledge
    login signin authenticate
    mute silence
    stage add
    switch checkout
    big large size
    know knowledge memory
    forget delete remove
    fact observation
    link relation connection edge
    person people entity node
    popup dialog alert
    dropdown select option
    mouse pointer hover cursor
    emoji reaction
    clock time
    structure tree
    scrape fetch
"""


def synonyms_of(token: str) -> Mapping[str, float]:
    """The tokens that may stand for a token, each with its weight."""
    return _table().get(token, _NONE)


@cache
def words_with_same() -> Mapping[str, frozenset[str]]:
    """The words that others mean the same as, with the tokens of those."""
    groups = [line.split() for line in _SAME.splitlines()]
    return {word: frozenset(map(stem, group)) for group in groups for word in group}


_NONE: Mapping[str, float] = {}


@cache
def _table() -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for groups, weight in ((_RELATED, RELATED_WEIGHT), (_SAME, SAME_WEIGHT)):
        for line in filter(str.strip, groups.splitlines()):
            group = [stem(word) for word in line.split()]
            for token in group:
                table.setdefault(token, {}).update((other, weight) for other in group if other != token)
    return table
