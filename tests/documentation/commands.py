"""The commands and their options as tables, from the parser of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from pointsman.router.cli.main import COMMANDS, HELP, main
from tests.documentation.markdown import code, table

COMMON = ("--db", "--config", "--state-dir", "--json")  # last, because so many commands have them
Commands = dict[str, tuple[click.Command, click.Context]]


def overview() -> str:
    """All commands, each with a link to its section."""
    return table(
        ("Command", "Does"),
        [(f"[`pointsman {name}`](#{_anchor(f'pointsman {name}')})", HELP[name]) for name in COMMANDS],
    )


def command(name: str) -> str:
    """The subcommands of a command, or itself if it has none, and the options of all of them."""
    commands = dict(_leaves(name))
    does = [(code(_usage(path, *each)), _text(each[0].help or "")) for path, each in commands.items()]
    options = table(("Option", "Of", "Meaning"), _options(name, commands))
    shown = table(("Command", "Does"), does) if len(does) > 1 else ": ".join(does[0])
    return f"{shown}\n\n{options}"


def _leaves(name: str) -> Iterator[tuple[str, tuple[click.Command, click.Context]]]:
    root = click.Context(main, info_name="pointsman")
    found = main.get_command(root, name)
    assert found is not None, name
    yield from _walk(name, found, root)


def _walk(
    path: str, found: click.Command, parent: click.Context
) -> Iterator[tuple[str, tuple[click.Command, click.Context]]]:
    context = click.Context(found, info_name=path.split()[-1], parent=parent)
    if not isinstance(found, click.Group):
        yield path, (found, context)
        return
    for name in found.list_commands(context):
        below = found.get_command(context, name)
        assert below is not None
        yield from _walk(f"{path} {name}", below, context)


def _usage(path: str, found: click.Command, context: click.Context) -> str:
    words = [piece for piece in found.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    return " ".join(["pointsman", path, *words])


def _options(name: str, commands: Commands) -> list[tuple[str, str, str]]:
    """Each option once, with the subcommands that have it; their names only where there are several."""
    owners: dict[tuple[str, str], list[str]] = {}
    for path, (found, context) in commands.items():
        for parameter in found.params:
            record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
            if record is not None:
                shown = record[0].replace("INTEGER RANGE", "N"), _in_words(_text(record[1]))
                owners.setdefault(shown, []).append(path.removeprefix(name).strip())
    rows = []
    for (option, text), having in sorted(owners.items(), key=lambda item: item[0][0].split()[0] in COMMON):
        of = "" if len(commands) == 1 else "all" if len(having) == len(commands) else ", ".join(map(code, having))
        rows.append((code(option), of, text))
    return rows


def _text(help_text: str) -> str:
    """The paragraphs of a help text in one line, without its examples, which click marks with `\\b`."""
    paragraphs = [each for each in help_text.split("\n\n") if not each.lstrip().startswith("\b")]
    return " ".join(" ".join(paragraphs).split()).replace("<", "&lt;")


def _in_words(text: str) -> str:
    """Default and range, which click writes as `[default: 10; 1<=x<=100]`."""
    text = re.sub(r"(\d+)&lt;=x&lt;=(\d+)", r"\1 to \2", text)
    text = re.sub(r"x>=(\d+)", r"at least \1", text)
    return re.sub(r" \[([^\]]*)\]$", r" (\1)", text)


def _anchor(heading: str) -> str:
    return heading.replace(" ", "-")
