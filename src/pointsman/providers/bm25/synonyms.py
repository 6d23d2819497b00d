"""Words that people use for one another when they ask for a tool."""

from __future__ import annotations

from functools import cache

from pointsman.providers.text import stem

SYNONYM_WEIGHT = 0.25  # of a synonym, relative to the word itself

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
    url link page address
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

    folder directory
    usage reference caller
    rename move
    section chapter
    now current today
    log history
    diff difference change
    undo revert restore
    copy duplicate clone
    zip compress archive
    unzip extract decompress
    screenshot capture
    command shell terminal
    visit open navigate browse
    click press tap
    type enter fill
    column field
    row record
    spreadsheet sheet excel
    note memo
    reply respond answer
    remember memory store
    login signin authenticate
    mute silence
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
