"""The command line. Each command has its own module, imported only when it runs, not for the list of commands."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from pointsman import __version__
from pointsman.core.escape import escaped

COMMANDS = {
    "serve": "pointsman.router.cli.run.serve:serve",
    "stdio": "pointsman.router.cli.run.stdio:stdio",
    "service": "pointsman.router.cli.run.service:service",
    "open": "pointsman.router.cli.show.page:open_",
    "page": "pointsman.router.cli.show.page:page",
    "status": "pointsman.router.cli.show.status:status",
    "log": "pointsman.router.cli.show.log:log",
    "config": "pointsman.router.cli.setup.config:config",
    "token": "pointsman.router.cli.setup.token:token",
    "grant": "pointsman.router.cli.show.grant:grant",
    "client": "pointsman.router.cli.setup.client_list:client",
    "import": "pointsman.router.cli.setup.import_:import_",
    "server": "pointsman.router.cli.setup.server:server",
    "secret": "pointsman.router.cli.setup.secret:secret",
    "project": "pointsman.router.cli.setup.project:project",
    "tools": "pointsman.router.cli.show.tools:tools",
    "approve": "pointsman.router.cli.show.approve:approve",
    "pin": "pointsman.router.cli.setup.pin:pin",
    "audit": "pointsman.router.cli.show.audit:audit",
    "doctor": "pointsman.router.cli.show.doctor:doctor",
    "state": "pointsman.router.cli.state:state",
    "search-api": "pointsman.router.cli.run.search_api:search_api",
    "archive": "pointsman.router.cli.archive:archive",
}

HELP = {  # the first sentence of each command's own help
    "serve": "Start the gateway.",
    "stdio": "Serve MCP on stdin and stdout, for clients that cannot use HTTP.",
    "service": "Keep the gateway running, as a service of this user.",
    "open": "Open the gateway's page in a browser, and print the link that signs it in.",
    "page": "Sign browsers out of the gateway's page.",
    "status": "Show the running gateway: servers, calls, latency and the context tokens it saves.",
    "log": "Print the gateway's own log file.",
    "config": "Validate the configuration, or show the effective one.",
    "token": "Create, list and revoke the tokens of clients.",
    "grant": "List and revoke the access of clients that have signed in.",
    "client": "Connect MCP clients such as Claude Code, Cursor or VS Code to this gateway.",
    "import": "Add the servers of MCP clients to the configuration.",
    "server": "Add, inspect, restart and remove the servers behind the gateway.",
    "secret": "Store secrets in the keyring of this user, and have the gateway read its secrets again.",
    "project": "List and remove the projects, and set how their tools are found.",
    "tools": "List, search and call the tools behind the gateway, as its owner.",
    "approve": "List the calls that wait for a person's yes, or answer the one with this ID.",
    "pin": "Review and approve what servers say about their tools, when it changes.",
    "audit": "Show who searched for or called which tool, and how it ended.",
    "doctor": "Check everything, and say what to do.",
    "state": "Copy the gateway's state between files and PostgreSQL.",
    "search-api": "Run the search service for one or more gateways.",
    "archive": "Fill and search the archive of your notes, papers and web pages.",
}


class LazyGroup(click.Group):
    """A group that imports a command on first use, so that `token create` does not import the daemon."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        with _no_collections():
            command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, HELP[name]) for name in COMMANDS])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=text) for name, text in HELP.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _escaped_messages():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _escaped_messages():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            raise click.UsageError(f"Unknown command `{args[0]}`.{hint}", ctx)
        return super().resolve_command(ctx, args)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Import without collections of garbage, which would traverse all modules again and again and free nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def _escaped_messages() -> Iterator[None]:
    """Click prints what is wrong with an argument, and quotes the argument. Commands escape their own messages."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise  # a group without its command: the message is the group's help
    except click.NoSuchOption as error:
        raise click.UsageError(escaped(_unknown_option(error)), error.ctx) from None
    except click.UsageError as error:
        if escaped(error.message) == error.message:
            raise
        raise click.UsageError(escaped(error.format_message()), error.ctx) from None


def _unknown_option(error: click.NoSuchOption) -> str:
    """Click compares options with their dashes, and so finds `--help` similar to `--level`."""
    import difflib

    without_dashes = {option.lstrip("-"): option for option in error.possibilities or ()}
    near = difflib.get_close_matches(error.option_name.lstrip("-"), without_dashes, n=1)
    return f"{error.message} Did you mean `{without_dashes[near[0]]}`?" if near else error.message


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pointsman")
def main() -> None:
    """One URL in front of all your MCP servers."""
