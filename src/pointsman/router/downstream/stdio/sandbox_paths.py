"""The files that a sandboxed program needs without being told: its system's, its interpreter's and its own.

docs/guide/sandbox.md lists the same.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PROGRAM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_ETC = """
alternatives ca-certificates crypto-policies fonts gai.conf group host.conf hosts ld.so.cache ld.so.conf ld.so.conf.d
localtime mime.types nsswitch.conf os-release passwd pki/ca-trust pki/tls/cert.pem pki/tls/certs pki/tls/openssl.cnf
protocols resolv.conf services ssl/cert.pem ssl/certs ssl/openssl.cnf timezone
"""  # not all of it: it holds keys and passwords, and in our image the configuration
SYSTEM_FILES = (*(f"/etc/{name}" for name in _ETC.split()), "/sys/devices/system/cpu")
# Variables for programs that download servers. Each server gets a folder of its own for that: in a common one, it could
# change the programs of others.
_UV = {"UV_CACHE_DIR": "{}/cache", "UV_TOOL_DIR": "{}/tools", "UV_PYTHON_INSTALL_DIR": "{}/python"}
_NPM = {"npm_config_cache": "{}/cache", "npm_config_userconfig": "{}/npmrc"}
_STARTERS = {"uv": _UV, "uvx": _UV, "npm": _NPM, "npx": _NPM}
_OFFLINE = {"uv": "UV_OFFLINE", "uvx": "UV_OFFLINE", "npm": "npm_config_offline", "npx": "npm_config_offline"}
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_INTERPRETERS = re.compile(r"(?:python|pypy|ruby|perl)[0-9.]*|node|nodejs|bun|deno|sh|bash")
_BESIDE_BIN = ("lib", "lib64", "libexec", "pyvenv.cfg")
_OF_PROJECT = ("package.json", "pyproject.toml")
_MAX_HOPS = 20
_FIRST_LINE = 256  # bytes that the kernel reads of it
_MAX_CONFIG = 4096


def find_program(command: str, cwd: Path | None, env: Mapping[str, str]) -> Path:
    """The file that an exec would run. Raises FileNotFoundError or PermissionError."""
    if "/" in command:
        path = Path(os.path.abspath((cwd or Path()) / command))
        if not path.exists():
            raise FileNotFoundError(command)
        if not os.access(path, os.X_OK) or path.is_dir():
            raise PermissionError(command)
        return path
    found = shutil.which(command, path=env.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(command)
    return Path(os.path.abspath(found))


def needed_paths(
    program: Path, args: Sequence[str], cwd: Path | None, env: Mapping[str, str], write: Sequence[Path] = ()
) -> Iterator[Path]:
    """Folders and files besides the system's own; some may not exist. A folder that holds the user's home is not among
    them: of a program there, only its file is. Nothing is concluded from what is in `write`: the server may have
    changed it, to reach more after its next start.
    """
    home = Path(env["HOME"]) if env.get("HOME", "").startswith("/") else None
    for hop in _hops(program, env, write):
        yield from _around(hop, home)
    if _INTERPRETERS.fullmatch(program.name):
        for script in _script(args, cwd):
            yield from _packages(script)
            yield from _narrow(_project_of(script.parent), script, home)
    if program.name in ("uv", "uvx") and home is not None:
        yield home / ".local" / "share" / "uv" / "python"
    for name in _CERTIFICATES:
        yield from (Path(each) for each in env.get(name, "").split(os.pathsep) if each.startswith("/"))


def starter_variables(program: str, folder: Path, network: bool) -> dict[str, str]:
    """Where a program that downloads servers keeps them, below `folder`; empty: it is not one."""
    variables = {name: value.format(folder) for name, value in _STARTERS.get(program, {}).items()}
    if variables and not network:
        variables[_OFFLINE[program]] = "true"  # or it asks for newer versions first, and fails
    return variables


def is_in(path: Path, folder: Path) -> bool:
    """As written, and where its folder is really; not where it leads itself, if it is a link."""
    place = _real(path.parent) / path.name
    return path.is_relative_to(folder) or place.is_relative_to(_real(folder))


def _hops(program: Path, env: Mapping[str, str], write: Sequence[Path]) -> Iterator[Path]:
    """A program, where its links lead, the interpreter that its first line names, and the Python of its environment."""
    left = [program]
    for _ in range(_MAX_HOPS):
        if not left:
            return
        hop = left.pop(0)
        if any(is_in(hop, folder) for folder in write):
            continue
        yield hop
        if hop.is_symlink():
            left.append(Path(os.path.normpath(os.path.join(os.path.realpath(hop.parent), os.readlink(hop)))))
        else:
            left += _interpreter(hop, env)
        left += _base_python(hop.parent.parent / "pyvenv.cfg")


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _interpreter(script: Path, env: Mapping[str, str]) -> list[Path]:
    try:
        with script.open("rb") as file:
            line = file.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return []
    if not line.startswith(b"#!"):
        return []
    words = os.fsdecode(line[2:]).split()
    named = [Path(word) for word in words[:1]]
    if words and Path(words[0]).name == "env":
        program = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), None)
        found = shutil.which(program, path=env.get("PATH", os.defpath)) if program is not None else None
        named += [Path(os.path.abspath(found))] if found is not None else []
    return [path for path in named if path.is_absolute() and os.access(path, os.X_OK)]


def _base_python(config: Path) -> list[Path]:
    """The Python that a virtual environment was made with."""
    try:
        with config.open(errors="replace") as file:
            text = file.read(_MAX_CONFIG)
    except OSError:
        return []
    home = re.search(r"(?m)^home *= *(/.*)$", text)
    python = Path(home[1].strip()) / "python3" if home else None
    return [python] if python is not None and os.access(python, os.X_OK) else []


def _around(program: Path, home: Path | None) -> Iterator[Path]:
    """What is installed together with a program."""
    folder = program.parent
    yield from _packages(program)
    if folder.name not in ("bin", "sbin"):
        yield from _narrow(folder, program, home)
        return
    yield folder
    yield from (folder.parent / name for name in _BESIDE_BIN)


def _packages(file: Path) -> Iterator[Path]:
    """The packages among which a file of Node.js is installed."""
    yield from [parent for parent in reversed(file.parents) if parent.name == "node_modules"][:1]


def _script(args: Sequence[str], cwd: Path | None) -> Iterator[Path]:
    """The file that an interpreter is to run."""
    for arg in args:
        if arg in ("-m", "-c", "-e"):
            return
        path = Path(os.path.abspath((cwd or Path()) / arg))
        if not arg.startswith("-") and path.is_file():
            yield path
            return


def _project_of(folder: Path) -> Path:
    """The folder of a script, or the one above it if the project begins there, as with `dist/index.js`."""
    own, above = (any((each / name).is_file() for name in _OF_PROJECT) for each in (folder, folder.parent))
    return folder.parent if above and not own else folder


def _narrow(folder: Path, file: Path, home: Path | None) -> Iterator[Path]:
    if home is not None and _real(home).is_relative_to(_real(folder)):
        yield file
    else:
        yield folder
