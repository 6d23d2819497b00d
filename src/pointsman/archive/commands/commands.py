"""The commands of `pointsman archive`. The group passes the function that locates the store."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

import click

from pointsman.archive.settings import DATABASE, ArchiveSettings, is_postgres
from pointsman.core.escape import escaped_json
from pointsman.core.given_path import GivenPath

if TYPE_CHECKING:  # heavy, and not needed to report an invalid option
    from pointsman.archive.store.base import Storage

MOST_ROWS = 1_000_000_000  # SQLite takes no number beyond 64 bits


class FindSettings(Protocol):
    """Locates the store; the group sets it as `ctx.obj`."""

    def __call__(
        self, *, db: Path | str | None, server: str | None, config: Path | None, state_dir: Path | None
    ) -> ArchiveSettings:
        """Return the settings of the store. Raises click.ClickException."""
        ...


class CommandError(click.ClickException):
    """Ends the command with exit code 1 and prints the message on stderr."""

    def show(self, file: Any = None) -> None:
        click.echo("\n".join(map(shown, self.message.split("\n"))), file=file, err=file is None)


class BadRequestError(CommandError):
    """A mistake on the command line: exit code 2."""

    exit_code = 2


class StoreName(click.Path):
    """A path, or the address of a database, which must not have a password: others see the command line."""

    name = "path or address"

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or not is_postgres(value):
            return super().convert(value, param, ctx)
        if urlsplit(value).password is not None or "password=" in value:
            self.fail(
                "an address on the command line must not have a password, which others on this machine could see. "
                f"Put it into PGPASSFILE, or the whole address into ${DATABASE}.",
                param,
                ctx,
            )
        return value


def store_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--db`, `--server`, `--config` and `--state-dir`; the command gets `settings` instead of them."""

    @click.option(
        "--db",
        type=StoreName(),
        help="Store to use: a file, or an address of PostgreSQL without a password; overrides the configuration.",
    )
    @click.option(
        "--server", metavar="ID", help="Use the store of this server. Default: the only server with `bundled: archive`."
    )
    @click.option("--config", type=GivenPath(), help="Configuration file that defines the server.")
    @click.option("--state-dir", type=GivenPath(file_okay=False), help="The gateway's state folder.")
    @wraps(command)
    def run(**options: Any) -> None:
        located = {name: options.pop(name) for name in ("db", "server", "config", "state_dir")}
        find: FindSettings = click.get_current_context().obj
        settings = find(**located)
        with _report_store_errors():
            command(settings=settings, **options)

    return run


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@contextmanager
def opened(settings: ArchiveSettings) -> Iterator[Storage]:
    """Open the store, creating it if needed, and add the pages shipped with Pointsman."""
    from pointsman.archive.archive import open_storage
    from pointsman.archive.shipped import ensure_pages

    assert settings.database is not None
    storage = open_storage(settings.database)
    try:
        ensure_pages(storage)
        yield storage
    finally:
        storage.close()


@contextmanager
def _report_store_errors() -> Iterator[None]:
    from pointsman.archive.embedding.base import EmbeddingError
    from pointsman.archive.embedding.passage_vectors import MixedSpacesError
    from pointsman.archive.store.errors import StoreError

    try:
        yield
    except (StoreError, EmbeddingError, MixedSpacesError) as error:
        raise CommandError(str(error)) from error


@click.command("list")
@click.argument("collection", required=False)
@click.option(
    "--limit", type=click.IntRange(1, MOST_ROWS), default=100, show_default=True, help="Maximum number of documents."
)
@click.option("--offset", type=click.IntRange(0, MOST_ROWS), default=0, help="Number of documents to skip.")
@json_option
@store_options
def list_(settings: ArchiveSettings, collection: str | None, limit: int, offset: int, as_json: bool) -> None:
    """List the collections, or the documents of COLLECTION (name or alias)."""
    with opened(settings) as storage:
        if collection is None:
            _show_collections(storage, as_json)
            return
        known_collection(storage, collection)
        page = storage.documents.list_documents(collection, limit, offset)
    if as_json:
        print_json({"documents": [dataclasses.asdict(each) for each in page.documents], "total": page.total})
        return
    for document in page.documents:
        click.echo(f"{shown(document.id)}\t{shown(document.title)}")
    so_far = offset + len(page.documents)
    if so_far < page.total:
        note(f"{page.total - so_far} more: --offset {so_far}")


def _show_collections(storage: Storage, as_json: bool) -> None:
    collections = storage.documents.collections()
    if as_json:
        rows = [{**dataclasses.asdict(each.manifest), "documents": each.documents} for each in collections]
        print_json({"collections": rows})
        return
    for each in collections:
        alias = f" ({each.manifest.alias})" if each.manifest.alias else ""
        about = f"  {each.manifest.description}" if each.manifest.description else ""
        click.echo(f"{shown(each.name + alias)}\t{each.documents}{shown(about)}")
    if not collections:
        note("No collections yet. Create one with `pointsman archive ingest DIR`.")


@click.command()
@json_option
@store_options
def stats(settings: ArchiveSettings, as_json: bool) -> None:
    """Print the size of the store, and how many documents, passages and vectors it holds."""
    with opened(settings) as storage:
        found = storage.documents.stats()
    if as_json:
        print_json({**dataclasses.asdict(found), "database": str(settings.database)})
        return
    click.echo(f"store       {shown(str(settings.database))} ({found.bytes / 1e6:.1f} MB)")
    for each in found.collections:
        click.echo(shown(f"collection  {each.name}: {each.documents} documents, {each.chunks} passages"))
    for space, count in found.vectors.items():
        click.echo(f"vectors     {count} ({space})")
    if found.waiting and settings.embeddings.provider != "none":
        click.echo(f"waiting     {found.waiting} passages without a vector; run `pointsman archive embed`")


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--collection", "collections", multiple=True, help="Search only this collection. Repeatable.")
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="Maximum number of results.")
@json_option
@store_options
def search(
    settings: ArchiveSettings, query: tuple[str, ...], collections: tuple[str, ...], limit: int, as_json: bool
) -> None:
    """Search like the tool documents_search: words, "phrases", +must, -not, tag:x, source:x, after:2024-01-01.

    Put -- before a query that starts with a minus sign.
    """
    from pointsman.archive.embedding.settings import make_embeddings
    from pointsman.archive.search.query_parser import parse
    from pointsman.archive.search.searcher import NOTHING, Searcher
    from pointsman.archive.shipped import without_pages

    if not "".join(query).strip():
        raise BadRequestError("The query is empty. Write the words to look for: `pointsman archive search WORDS`.")
    with opened(settings) as storage:
        asked = parse(" ".join(query))
        names = tuple(known_collection(storage, name) for name in collections)
        if names:
            asked = dataclasses.replace(asked, filters=dataclasses.replace(asked.filters, collections=names))
        asked = without_pages(storage, asked)
        answer = Searcher(storage, make_embeddings(settings.embeddings)).search(asked, limit)
    for notice in answer.notices:
        if notice != NOTHING:  # this command has its own text for it
            note(notice)
    if as_json:
        print_json({"results": [_hit(each) for each in answer.found]})
        return
    for each in answer.found:
        where = each.passage
        title = f"{where.title} > {where.chunk.heading}" if where.chunk.heading else where.title
        place = f"{where.collection}/{where.document}:{where.chunk.start_line}"
        click.echo(f"{each.relevance:.2f}  {shown(place)}  {shown(title)}")
        click.echo(f"      {shown(' '.join(where.chunk.text.split())[:200])}")
    if not answer.found:
        note("No results. List the collections with `pointsman archive list`.")


def _hit(found: Any) -> dict[str, Any]:
    where = found.passage
    return {
        "collection": where.collection,
        "document": where.document,
        "title": where.title,
        "heading": where.chunk.heading,
        "line": where.chunk.start_line,
        "relevance": round(found.relevance, 4),
        "distance": round(found.distance, 4),
        "text": where.chunk.text,
    }


@click.command()
@click.argument("collection")
@click.argument("documents", nargs=-1)
@json_option
@store_options
def remove(settings: ArchiveSettings, collection: str, documents: tuple[str, ...], as_json: bool) -> None:
    """Remove COLLECTION (name or alias), or only the given DOCUMENTS from it."""
    with opened(settings) as storage:
        name = known_collection(storage, collection)
        if not documents:
            storage.documents.remove_collection(name)
            if as_json:
                print_json({"collection": name, "removed": None})
            note(f"Removed collection `{name}`.")
            return
        missing = [each for each in documents if storage.documents.document(name, each) is None]
        if missing:
            near = storage.documents.nearest_documents(name, missing[0])
            hint = f" Did you mean `{near[0]}`?" if near else ""
            raise BadRequestError(f"No document `{missing[0]}` in `{name}`. Nothing was removed.{hint}")
        storage.documents.remove_documents(name, documents)
    if as_json:
        print_json({"collection": name, "removed": list(documents)})
    note(f"Removed {len(documents)} documents from `{name}`.")


@click.command()
@click.option("--again", is_flag=True, help="Recompute all vectors, for another provider or model.")
@json_option
@store_options
def embed(settings: ArchiveSettings, again: bool, as_json: bool) -> None:
    """Compute the missing vectors of passages. Resumes after an interruption."""
    with opened(settings) as storage:
        done = embedded(storage, settings, again=again)
    if done is None:
        raise BadRequestError("Embeddings are disabled (POINTSMAN_ARCHIVE_EMBEDDINGS=none). Nothing to do.")
    if as_json:
        print_json({"computed": done})
    note(f"Computed vectors for {done} passages.")


def embedded(storage: Storage, settings: ArchiveSettings, *, again: bool = False) -> int | None:
    """Compute missing vectors; return their number, or None if embeddings are disabled.

    Raises:
        EmbeddingError, MixedSpacesError, StoreError
    """
    from pointsman.archive.embedding.passage_vectors import embed_passages
    from pointsman.archive.embedding.settings import make_embeddings

    embeddings = make_embeddings(settings.embeddings)
    if embeddings is None:
        return None
    try:
        with Bar("Embedding") as bar:
            return embed_passages(storage, embeddings, again=again, on_progress=bar.update)
    finally:
        embeddings.close()


def known_collection(storage: Storage, name: str) -> str:
    """Return the full name of a collection. Raises BadRequestError, which suggests the nearest name."""
    found = storage.documents.collection(name)
    if found is None:
        near = storage.documents.nearest_collections(name)
        hint = f" Did you mean `{near[0]}`?" if near else " List them with `pointsman archive list`."
        raise BadRequestError(f"No collection `{name}`.{hint}")
    return found.name


def shown(text: str) -> str:
    """Replace characters that could move the cursor or break the line of a terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in text)


def note(message: str) -> None:
    """Print a message on stderr: stdout is for results."""
    click.echo(shown(message), err=True)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    click.echo(escaped_json(json.dumps(value, ensure_ascii=False, indent=indent)))


Item = TypeVar("Item")


class Bar:
    """Context manager that shows a progress bar on stderr."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: Any = None  # click's, which has no public name

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.render_finish()

    def update(self, done: int, total: int) -> None:
        if not sys.stderr.isatty():
            return
        if self._bar is None:
            self._bar = click.progressbar(length=total, label=self._label, file=sys.stderr, show_pos=True)
        self._bar.length = max(total, 1)
        self._bar.update(done - self._bar.pos)

    def over(self, items: Iterable[Item], total: int) -> Iterator[Item]:
        for done, item in enumerate(items):
            self.update(done, total)
            yield item
        self.update(total, total)
