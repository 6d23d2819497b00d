"""The codes of errors as tables, each with its meaning and the next step, from the modules that define them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import get_args

from pointsman.core import errors as core
from pointsman.providers.cloud import errors as cloud
from pointsman.router.search_api import messages
from pointsman.router.search_api.errors import STATUSES
from tests.documentation.markdown import code, table


def of_gateway() -> str:
    described = {
        **dict(_of_classes(core.GatewayError)),
        **dict(_of_classes(core.RefusedError)),
        **dict(_of_constants()),
    }
    return _table(sorted(described.items()))


def of_archive() -> str:
    return _table(core.BUNDLED_MEANINGS.items())


def of_cloud_search() -> str:
    """By the functions that create them; the reason continues "the search service"."""
    created = [
        cloud.timed_out(5),
        cloud.left_alone(),
        cloud.unreachable(),
        cloud.disconnected(),
        *(cloud.status(number) for number in (401, 403, 404, 421, 301, 413, 429, 500)),
        cloud.malformed(""),
        cloud.oversized(1_048_576),
        cloud.invented(1),
        cloud.busy(),
        cloud.unconfigured(),
        cloud.internal(),
    ]
    return table(
        ("`code`", "The search service ...", "Next step"),
        [(code(one.code), f"{one}.", _sentence(one.fix)) for one in created],
    )


def of_search_service() -> str:
    statuses = {
        name: ", ".join(str(status) for status, names in STATUSES.items() if name in names) for name in _api_codes()
    }
    return table(
        ("Status", "`code`", "Meaning"), [(statuses[name], code(name), text) for name, text in messages.CODES.items()]
    )


def cloud_codes_in_source() -> set[str]:
    """Every code that the module names, to compare with those of the table."""
    tree = ast.parse(inspect.getsource(cloud))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in texts if text.startswith("cloud_") and text.isidentifier()} - {"cloud_search"}


def _api_codes() -> tuple[str, ...]:
    return get_args(messages.Code)


def _of_classes(base: type[Exception]) -> Iterator[tuple[str, str]]:
    for kind in base.__subclasses__():
        assert kind.__doc__ is not None, kind
        yield vars(kind)["code"], kind.__doc__


def _of_constants() -> Iterator[tuple[str, str]]:
    body = ast.parse(inspect.getsource(core)).body
    for constant, text in pairwise(body):
        if isinstance(constant, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            yield ast.literal_eval(constant.value), str(text.value.value)


def _table(described: Iterable[tuple[str, str]]) -> str:
    rows = []
    for name, text in described:
        meaning, _, step = " ".join(text.split()).partition(" Next: ")
        rows.append((code(name), meaning, _sentence(step)))
    return table(("`code`", "Meaning", "Next step"), rows)


def _sentence(text: str) -> str:
    """A step with a capital letter and a full stop; names in backticks stay as they are."""
    return text and text[0].upper() + text[1:].rstrip(".") + "."
