"""What a person reads at the first start, and never again."""

from __future__ import annotations

from pathlib import Path


def welcome(secret: str, url: str, config_path: Path, state_folder: Path) -> str:
    """The first token stands here in full: nothing keeps it, so this is the one time it can be read."""
    return f"""
Welcome to Pointsman. This is the first start, so a configuration and a token were made.

  configuration   {_short(config_path)}
  state           {_short(state_folder)}
  your token      {secret}
                  It is shown only now. `pointsman token create NAME` makes more.

Point a client at it, for example:

  claude mcp add --transport http pointsman {url} --header "Authorization: Bearer {secret}"

Next: name your MCP servers in the configuration. It is read again whenever you save it.
"""


def welcome_to_search_api(secret: str, url: str, config_path: Path) -> str:
    """The same for the search service."""
    return f"""
Welcome to the search service of Pointsman. This is the first start, so a configuration and a token were made.

  configuration   {_short(config_path)}
  your token      {secret}
                  It is shown only now. `pointsman token create NAME --project P` makes more.

In the configuration of a gateway:

  cloud_search: {{url: "{url}", token: "{secret}"}}
  unassigned: {{optimization: cloud}}   # and so for projects
"""


def _short(path: Path) -> str:
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)
