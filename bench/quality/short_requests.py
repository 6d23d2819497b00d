"""Short requests for small catalogs, made from tools of real servers that come without requests.

People ask for `delete an invoice`; the requests of the public sets are sentences. A request here is the beginning of a
tool's description. It is put to servers that do not have this tool. It is right there if the best hit is a tool of the
same name, which another author described; if no tool has that name, it is foreign. A few foreign ones could be served.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from bench.quality.sets import Asked
from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.actions import begins_with_verb
from pointsman.providers.text import first_sentence, tokens

CATALOGS = 60
SIZES = (50, 75, 100, 150)
MOST_OF_A_SERVER = 30
EACH = 40  # requests of either kind that are put to each catalog
LONGEST = 7  # words
SAME_AUTHOR = 60  # characters at the beginning of two descriptions that make them one

_MARKS = re.compile(r"[`*#\"'()\[\]]")
_DETAILS = re.compile(r"\b(?:by|using|via|with|based|including|such)\b|[,;:.]")


@dataclass(frozen=True, slots=True)
class ShortRequests:
    tools: list[ToolDocument]
    right: list[Asked]
    foreign: list[Asked]


def draw_all(documents: Sequence[ToolDocument], chance: Random) -> Iterator[ShortRequests]:
    by_server: dict[str, dict[str, ToolDocument]] = {}
    by_name: dict[str, list[ToolDocument]] = {}
    for each in documents:
        by_server.setdefault(each.server_name, {})[each.tool_key] = each
        by_name.setdefault(_name(each), []).append(each)
    for _ in range(CATALOGS):
        tools: list[ToolDocument] = []
        size = chance.choice(SIZES)
        for server in chance.sample(list(by_server), len(by_server)):
            tools += list(by_server[server].values())[:MOST_OF_A_SERVER]
            if len(tools) >= size:
                break
        yield _requests(tools, documents, by_name, chance)


def _requests(
    tools: list[ToolDocument],
    documents: Sequence[ToolDocument],
    by_name: dict[str, list[ToolDocument]],
    chance: Random,
) -> ShortRequests:
    servers = {each.server_name for each in tools}
    keys: dict[str, list[str]] = {}
    for each in tools:
        keys.setdefault(_name(each), []).append(each.tool_key)
    known = {each.description[:SAME_AUTHOR] for each in tools}
    alike = [
        each
        for name in keys
        for each in by_name[name]
        if each.server_name not in servers and each.description[:SAME_AUTHOR] not in known
    ]
    others = [each for each in documents if each.server_name not in servers and _name(each) not in keys]
    right = [
        Asked(text, (frozenset(keys[_name(each)]),))
        for each in chance.sample(alike, len(alike))
        if (text := _request(each))
    ]
    foreign = [
        Asked(text, ()) for each in chance.sample(others, min(len(others), 10 * EACH)) if (text := _request(each))
    ]
    return ShortRequests(tools, _different(right), _different(foreign))


def _request(tool: ToolDocument) -> str | None:
    """The beginning of a description, without the details; None: it does not say what the tool does."""
    sentence = _MARKS.sub("", first_sentence(tool.description)).strip()
    said = _DETAILS.split(sentence)[0].split()[:LONGEST]
    return " ".join(said) if len(said) > 1 and begins_with_verb(sentence) else None


def _different(asked: Sequence[Asked]) -> list[Asked]:
    return list({each.query.lower(): each for each in asked}.values())[:EACH]


def _name(tool: ToolDocument) -> str:
    return " ".join(sorted(tokens(tool.tool_name)))
