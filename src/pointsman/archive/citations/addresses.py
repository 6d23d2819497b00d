"""The names of documents and the names that citations may mean, in one normal form: equal names resolve a citation.

Pure. A name is a text such as `path:notes:a/b` or `url:example.com/a`; the store keeps a hash of it.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urljoin, urlsplit

from pointsman.archive.citations.patterns import ARXIV, DOI, WIKI
from pointsman.archive.model.documents import Citation, Document

_TRACKING = re.compile(r"^(utm_\w+|fbclid|gclid|dclid|msclkid|yclid|igshid|mc_[ce]id|ref_src|_hs\w+|spm)$", re.I)
_PAGE = re.compile(r"\.(md|markdown|mdx|html?|xhtml|txt|rst|pdf)$", re.I)
_INDEX = re.compile(r"(^|/)(index|readme|_index)$", re.I)
_SITE_INDEX = re.compile(r"/index$", re.I)
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*://", re.I)
_DOI_IN_ADDRESS = re.compile(r"(?:doi\.org/|^doi:\s*|^)(10\.\d{4,9}/\S+)$", re.I)
_ARXIV_IN_ADDRESS = re.compile(
    r"(?:arxiv\.org/(?:abs|pdf|html)/|^arxiv:\s*|^)(\d{4}\.\d{4,5}|[a-z][a-z-]+(?:\.[a-z]{2})?/\d{7})(?:v\d+)?(?:\.pdf)?$",
    re.I,
)
_RESOLVERS = {DOI: "https://doi.org/", ARXIV: "https://arxiv.org/abs/"}
_LEAST_SLUG = 2  # parts of a slug that must remain when leading ones are dropped
_MOST_PREFIX = 2
_MOST_ALIASES = 50


@dataclass(frozen=True, slots=True)
class Name:
    key: int
    alias: bool = False  # not its own name: resolves with less confidence


def names_of_document(document: Document) -> tuple[Name, ...]:
    """All names by which the document can be cited."""
    named: dict[str, bool] = {}
    for text in _own_names(document):
        named.setdefault(text, False)
    for text in _aliases(document):
        named.setdefault(text, True)
    return tuple(Name(key(text), alias) for text, alias in named.items())


def names_of_citation(document: Document, citation: Citation) -> tuple[Name, ...]:
    """The names that a citation of `document` may mean, the likeliest first."""
    named: dict[str, bool] = {}
    for text, alias in _possible_names(document, citation):
        named.setdefault(text, alias)
    return tuple(Name(key(text), alias) for text, alias in named.items())


def address(document: Document, citation: Citation) -> str:
    """Identify what an unresolved citation means: equal for all citations that mean the same."""
    if url := _url(citation.kind, citation.target):
        return f"https://{canonical(url)}"
    if citation.kind == WIKI:
        return f"[[{' '.join(citation.target.split())}]]"
    if document.url:
        return f"https://{canonical(urljoin(document.url, citation.target))}"
    return f"{document.collection}/{_relative(document, citation.target)}"


def resolver_url(kind: str, target: str) -> str:
    """The target as written; a DOI or arXiv number as the address that resolves it."""
    return _RESOLVERS.get(kind, "") + target


def canonical(url: str) -> str:
    """Normalize an address: drop scheme, `www.`, fragment, tracking parameters, trailing slash and `.html`."""
    try:
        parts = urlsplit(url.strip())
        host = (parts.hostname or "").removeprefix("www.")
        port = f":{parts.port}" if parts.port not in (None, 80, 443) else ""
    except ValueError:  # an invalid port or bracket
        return url.strip().partition("#")[0].partition("://")[2]
    query = urlencode(sorted(pair for pair in parse_qsl(parts.query) if not _TRACKING.match(pair[0])))
    path = _SITE_INDEX.sub("", _stem(unquote(parts.path).rstrip("/")))
    return f"{host}{port}/{path.lstrip('/')}".rstrip("/") + (f"?{query}" if query else "")


def key(text: str) -> int:
    """A 64-bit hash of a name."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "big", signed=True)


def _own_names(document: Document) -> Iterator[str]:
    metadata = document.metadata or {}
    yield from (f"path:{document.collection}:{path}" for path in _path_names(document.id))
    yield from (f"slug:{_slug(slug)}" for slug in _texts(metadata, "slug", "permalink"))
    addresses = [document.url or "", *_texts(metadata, "url", "canonical_url", "canonical", "source_url")]
    for url in filter(None, addresses):
        yield f"url:{canonical(url)}"
    for number in (*addresses, *_texts(metadata, "doi", "arxiv", "arxiv_id", "eprint")):
        yield from _numbers(number)
    for title in (document.title, posixpath.basename(_folder_or_file(document.id))):
        yield from _title_names(document.collection, title)


def _aliases(document: Document) -> Iterator[str]:
    for alias in _texts(document.metadata or {}, "aliases", "alias", "redirect_from"):
        yield from _title_names(document.collection, alias)
        yield f"slug:{_slug(alias)}"
        if _ABSOLUTE.match(alias):
            yield f"url:{canonical(alias)}"


def _possible_names(document: Document, citation: Citation) -> Iterator[tuple[str, bool]]:
    kind, target = citation.kind, citation.target
    if url := _url(kind, target):
        yield f"url:{canonical(url)}", False
        yield from ((number, False) for number in _numbers(url))
    elif kind == WIKI:
        yield from ((f"path:{document.collection}:{path}", False) for path in _path_forms(target.strip("/")))
        yield from ((title, False) for title in _title_names(document.collection, target))
        yield from ((title, True) for title in _title_names(document.collection, posixpath.basename(target)))
    else:
        yield from _possible_paths(document, target)


def _possible_paths(document: Document, target: str) -> Iterator[tuple[str, bool]]:
    for path in _path_forms(_relative(document, target)):
        yield f"path:{document.collection}:{path}", False
    if target.startswith("/"):
        parts = _slug(target).split("/")
        for dropped in range(min(_MOST_PREFIX, max(0, len(parts) - _LEAST_SLUG)) + 1):
            yield f"slug:{'/'.join(parts[dropped:])}", dropped > 0
    if document.url:
        yield f"url:{canonical(urljoin(document.url, target))}", False


def _url(kind: str, target: str) -> str | None:
    """The absolute address of a citation, if it has one."""
    scheme, _, rest = target.partition(":")
    if kind in _RESOLVERS:
        return resolver_url(kind, target)
    if scheme.lower() in _RESOLVERS and rest:
        return resolver_url(scheme.lower(), rest.strip())
    if target.startswith("//"):
        return f"https:{target}"
    return target if _ABSOLUTE.match(target) else None


def _relative(document: Document, target: str) -> str:
    """The path below the collection's root that a link of the document means."""
    path = unquote(target.partition("#")[0].partition("?")[0])
    if path.startswith("/"):
        return posixpath.normpath(path).lstrip("/")
    return posixpath.normpath(posixpath.join(posixpath.dirname(document.id), path)).removeprefix("./")


def _path_names(path: str) -> Iterator[str]:
    """`a/index.md` is also `a/index` and `a`."""
    stem = _stem(path)
    yield path
    yield stem
    if _INDEX.search(stem):
        yield posixpath.dirname(stem) or "."


def _folder_or_file(path: str) -> str:
    """The path that names a document: an index file is named by its folder, since every folder may have one."""
    stem = _stem(path)
    return posixpath.dirname(stem) if _INDEX.search(stem) else stem


def _path_forms(path: str) -> Iterator[str]:
    yield path.rstrip("/") or "."
    yield _stem(path.rstrip("/")) or "."


def _title_names(collection: str, title: str) -> Iterator[str]:
    """In order of preference: a title in the same collection, then in any."""
    plain = " ".join(unicodedata.normalize("NFC", title).replace("_", " ").split()).casefold()
    if plain:
        yield f"title:{collection}:{plain}"
        yield f"title::{plain}"


def _numbers(text: str) -> Iterator[str]:
    text = text.strip()
    if match := _DOI_IN_ADDRESS.search(text):
        yield f"doi:{match.group(1).lower()}"
    if match := _ARXIV_IN_ADDRESS.search(text):
        yield f"arxiv:{match.group(1).lower()}"


def _slug(text: str) -> str:
    return _stem(unquote(text.partition("#")[0].partition("?")[0]).strip("/")).casefold()


def _stem(path: str) -> str:
    return _PAGE.sub("", path)


def _texts(metadata: Any, *names: str) -> list[str]:
    """The values of these front matter keys, each a text or a list of texts."""
    texts: list[str] = []
    for name in names:
        value = metadata.get(name)
        values: Iterable[Any] = value if isinstance(value, list | tuple) else (value,)
        texts += (str(each).strip() for each in values if isinstance(each, str | int | float) and str(each).strip())
    return texts[:_MOST_ALIASES]
