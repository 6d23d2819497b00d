"""The keys of the configuration and the environment variables as tables, from the models of `pointsman.config`."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from pointsman.config import model
from pointsman.config.sections import auth, server, value_types
from pointsman.config.sections.part import Part
from pointsman.config.settings import PREFIX, Settings
from tests.documentation.markdown import code, table

# How a value is called in the tables, and what it is; bounds are added from the type itself.
VALUES: Mapping[Any, tuple[str, str]] = {
    value_types.Seconds: ("seconds", "a number"),
    value_types.Count: ("count", "an integer"),
    value_types.MemorySize: ("size", "bytes, or a text such as `512M` or `2G`, in steps of 1024"),
    value_types.Id: ("id", "letters, digits, `_` and `-`, without `__`; at most 64 characters"),
    value_types.Prefix: ("prefix", "letters, digits, `_`, `.` and `-`; at most 64 characters"),
    value_types.Digest: ("hash", "64 hexadecimal digits"),
    value_types.Moment: ("time", "a date or a time in ISO 8601"),
    value_types.LocalPath: ("path", "relative to the folder of the file; `~` is your home folder"),
    value_types.Store: ("path or address", "a path, or `postgresql://USER@HOST/DATABASE`, which `config show` masks"),
    value_types.WebAddress: ("URL", "with `http` or `https`"),
    value_types.ServiceAddress: ("base URL", "a URL without user, `?` and `#`"),
    value_types.BearerToken: ("secret", "a text that `config show` and the log mask"),
    value_types.Network: ("network", "an IP address or a CIDR network"),
}
NAMES = {
    **{kind: name for kind, (name, _) in VALUES.items()},
    value_types.Confirm: "`never`, `destructive`, `writes` or list of patterns",
    value_types.RequestKey: "secret",
    value_types.PublicAddress: "URL",
    value_types.IssuerAddress: "URL",
    auth.Conditions: 'map of claims to values, or `"*"`',
    auth.Audiences: "text or list of texts",
    value_types.DatabaseAddress: "text",
    value_types.CollectorAddress: "base URL",
    value_types.PeerAddress: "text",
    value_types.Program: "text",
    value_types.RootName: "name",
    value_types.VariableName: "name",
    value_types.Variable: "secret",
    value_types.HeaderName: "name",
    value_types.HeaderValue: "secret",
    SecretStr: "secret",
    str: "text",
    bool: "`true` or `false`",
    int: "integer",
    float: "number",
    Path: "path",
}
PLURAL = {"secret": "secrets", "text": "texts", "id": "ids", "name": "names", "network": "networks", "path": "paths"}


def keys(part: str) -> str:
    """The keys of one part of the configuration, which `part` names as the model does: `SearchApiLimits`."""
    [owner] = [one for one in parts() if one.__name__ == part]
    return _table("Key", owner, lambda name: name)


def variables() -> str:
    return _table("Variable", Settings, lambda name: PREFIX + name.upper())


def values() -> str:
    return table(("Value", "Is"), [(name, f"{what}{_bounds(kind)}") for kind, (name, what) in VALUES.items()])


def parts() -> list[type[Part]]:
    named = vars(model) | vars(server) | vars(auth)
    found = [part for part in named.values() if isinstance(part, type) and issubclass(part, Part)]
    return [part for part in found if part is not Part]


@cache
def descriptions(owner: type[BaseModel]) -> Mapping[str, str]:
    """The text below each field, by the field's name."""
    [body] = ast.parse(inspect.getsource(owner)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in pairwise(body.body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return found


def _table(title: str, owner: type[BaseModel], name_of: Any) -> str:
    hints = get_type_hints(owner, include_extras=True)
    rows = [
        (code(name_of(name)), _kind(hints[name], field), _default(field), descriptions(owner)[name])
        for name, field in owner.model_fields.items()
    ]
    return table((title, "Value", "Default", "Meaning"), rows)


def _kind(hint: Any, field: FieldInfo) -> str:
    """What may be written, in words."""
    if hint in NAMES:
        return NAMES[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return NAMES[arguments[0]] + _bounds(hint) if arguments[0] in NAMES else _kind(arguments[0], field)
    if origin is Literal:
        return _either(code(each) for each in arguments)
    if origin in (Union, types.UnionType):
        return _optional(arguments, field)
    if origin is tuple:
        return f"list of {_many(_kind(arguments[0], field))}"
    if origin is Mapping:
        return f"map of {_many(_kind(arguments[0], field))} to {_many(_kind(arguments[1], field))}"
    assert issubclass(hint, Part), hint
    return "keys"


def _optional(arguments: tuple[Any, ...], field: FieldInfo) -> str:
    """A value that may be absent; where that is not the default, it is written as `null`."""
    [kind] = [_kind(each, field) for each in arguments if each is not type(None)]
    return kind if field.default is None else f"{kind.replace(' or ', ', ')} or `null`"


def _either(choices: Iterable[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def _many(kind: str) -> str:
    return PLURAL.get(kind, kind)


def _bounds(hint: Any) -> str:
    """The bounds of an annotated number: ", at least 1"."""
    metadata = [each for one in get_args(hint)[1:] for each in getattr(one, "metadata", [one])]
    words = {Gt: ("more than", "gt"), Ge: ("at least", "ge"), Le: ("at most", "le")}
    found = [
        f"{text} {getattr(bound, attribute)}"
        for kind, (text, attribute) in words.items()
        for bound in metadata
        if isinstance(bound, kind)
    ]
    return "".join(f", {each}" for each in found)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.default
    if default is None or isinstance(default, Part):
        return ""
    if isinstance(default, bool):
        return code(str(default).lower())
    if isinstance(default, tuple):
        return code(f"[{', '.join(map(str, default))}]")
    if isinstance(default, dict):
        return code("{}")
    return code(f"{default:g}" if isinstance(default, float) else str(default))
