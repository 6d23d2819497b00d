"""Rates: how much one token, one server and one tool may be used in a minute and in a day."""

from __future__ import annotations

from pointsman.config.sections.part import Part
from pointsman.config.sections.value_types import Count


class TokenRates(Part):
    """Of one token, and at the top level the default for each token. An explicit `null` lifts a default."""

    calls_per_minute: Count | None = None
    """Calls of tools in any 60 seconds."""
    calls_per_day: Count | None = None
    """Calls of tools in any 24 hours."""
    discoveries_per_minute: Count | None = None
    """Tokens only. Searches with `tool_discovery`, and lists of tools (`exposure: flat`), resources, prompts and
    skills, in any 60 seconds."""
    reads_per_minute: Count | None = None
    """Tokens and servers. Reads of resources, prompts, skills and [stored results](../concepts/large-results.md),
    completions and subscriptions, in any 60 seconds."""


class ServerRates(Part):
    """Of one server, all tokens together."""

    calls_per_minute: Count | None = None
    calls_per_day: Count | None = None
    reads_per_minute: Count | None = None


class ToolRates(Part):
    """Of one tool, all tokens together."""

    calls_per_minute: Count | None = None
    calls_per_day: Count | None = None
