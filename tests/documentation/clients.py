"""What `pointsman client` writes for each client, from the table of dialects."""

from __future__ import annotations

from pointsman.router.clients.dialects import DIALECTS, Dialect
from pointsman.router.clients.entry import Connection, NotExpressibleError, entry_for
from pointsman.router.clients.setup import snippet
from tests.documentation.markdown import code, table

URL = "http://127.0.0.1:3282/mcp"
COMMAND = ("/home/anna/pointsman/.venv/bin/pointsman", "stdio")
VARIABLE = "POINTSMAN_TOKEN"


def overview() -> str:
    """All clients, each with its page, its name on the command line and its files."""
    rows = [
        (
            f"[{dialect.title}](clients/{dialect.name}.md)",
            code(dialect.name),
            _files(dialect),
            code(dialect.project_file) if dialect.project_file else "-",
            "the real program" if dialect.verified else "documentation",
        )
        for dialect in DIALECTS.values()
    ]
    return table(("Client", "Name", "File", "In a project", "Form checked with"), rows)


def client(name: str) -> str:
    """The commands for one client, and what they write."""
    dialect = DIALECTS[name]
    parts = [
        f"```sh\npointsman client add {name}\n```",
        f"It shows this entry, asks, and writes it with a new token to {_places(dialect)}:",
        _block(dialect, _usual(dialect)),
        dialect.after,
        _variants(dialect),
        "The form is tested with the real program." if dialect.verified else _UNTESTED,
    ]
    return "\n\n".join(filter(None, parts))


_UNTESTED = "The form follows the client's documentation; it has not been tested with the program."


def _usual(dialect: Dialect) -> Connection:
    return Connection(URL) if dialect.http is not None else Connection("", command=COMMAND)


def _files(dialect: Dialect) -> str:
    return ", ".join(map(code, dialect.user_files))


def _places(dialect: Dialect) -> str:
    """The files for a person: with the folders of Linux, and of macOS where they differ."""
    places = []
    for text in dialect.user_files:
        variable, _, rest = text.partition("/")
        linux = text.replace("{config}", "~/.config").replace("{apps}", "~/.config")
        mac = text.replace("{config}", "~/.config").replace("{apps}", "~/Library/Application Support")
        if text.startswith("$"):
            places.append(f"{code(text)}, if `{variable}` is set" if rest else f"the file that `{variable}` names")
        else:
            places.append(code(linux) if linux == mac else f"{code(linux)} (on macOS {code(mac)})")
    return ", or ".join(places)


def _variants(dialect: Dialect) -> str:
    """The other forms, each with the option that writes it."""
    with_variable = _written(dialect, Connection(URL, variable=VARIABLE)) if dialect.http is not None else None
    parts = []
    if with_variable is not None:
        parts += [f"`--env {VARIABLE}` writes no token, but refers to the variable:", with_variable]
    if dialect.project_file is not None and with_variable is not None:
        parts.append(
            f"`--scope project` writes the same to `{dialect.project_file}` in this folder, for others to share."
        )
    if dialect.http is not None and with_variable is None:
        parts.append(f"`--env` and `--scope project` are refused: {dialect.title} does not read variables there.")
    if dialect.http is not None:
        connection = Connection("", command=COMMAND)
        parts += ["`--stdio` lets the client start the [bridge](../stdio.md):", _block(dialect, connection)]
    return "\n\n".join(parts)


def _written(dialect: Dialect, connection: Connection) -> str | None:
    try:
        return _block(dialect, connection)
    except NotExpressibleError:
        return None


def _block(dialect: Dialect, connection: Connection) -> str:
    return f"```{dialect.format}\n{snippet(dialect, 'pointsman', entry_for(dialect, connection)).rstrip()}\n```"
