"""What is published: a wheel and an sdist that hold the whole gateway and no name but ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from pointsman import __version__
from pointsman.archive.shipped import PARTS
from tests.gateway_process import own_environment

pytest.importorskip("hatchling", reason="hatchling is not installed (run `make install`)")

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/pointsman"


def build(source: Path, target: str, into: Path) -> Path:
    command = (sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into))
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return next(into.glob("*.whl" if target == "wheel" else "*.tar.gz"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("published")
    return build(ROOT, "wheel", folder), build(ROOT, "sdist", folder)


def test_the_wheel_holds_every_module_of_the_checkout_and_no_generic_name(published: tuple[Path, Path]) -> None:
    names = set(contents(published[0]))
    modules = {f"pointsman/{file.relative_to(PACKAGE).as_posix()}" for file in PACKAGE.rglob("*.py")}
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"pointsman"}
    assert modules <= names
    assert {"pointsman/__init__.py", "pointsman/__main__.py", "pointsman/py.typed"} <= names
    assert "pointsman/config/sample.yaml" in names
    shown = [page for part in PARTS for page in (ROOT / "docs" / part).rglob("*") if page.is_file()]
    pages = {page.relative_to(ROOT).as_posix() for page in shown} | {"README.md"}
    assert {f"pointsman/archive/pages/{page}" for page in pages} == {name for name in names if "/pages/" in name}


def test_a_wheel_built_from_the_sdist_is_the_same(published: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, sdist = published
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    again = build(next(tmp_path.iterdir()), "wheel", tmp_path / "dist")
    assert contents(again) == contents(wheel)


def test_an_unpacked_sdist_has_all_that_the_first_commands_of_the_readme_need(
    published: tuple[Path, Path], tmp_path: Path
) -> None:
    with tarfile.open(published[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    [unpacked] = tmp_path.iterdir()
    planned = subprocess.run(("make", "-n", "run", "UV="), cwd=unpacked, capture_output=True, text=True)
    assert "--requirement requirements.lock" in planned.stdout, planned.stderr
    copied = re.findall(r"^COPY ([\w.-]+) ", (unpacked / "Dockerfile").read_text(), re.MULTILINE)
    linked = re.findall(r"\]\(((?!http)[^)#]+)", (unpacked / "README.md").read_text())
    missing = [name for name in (*copied, *linked, "docker-compose.yml") if not (unpacked / name).exists()]
    assert missing == []


@pytest.mark.clients
@pytest.mark.skipif(shutil.which("uvx") is None, reason="uv is not installed")
@pytest.mark.parametrize("starter", ["uvx --from WHEEL", "uvx --from SDIST", "uvx pipx run --spec WHEEL"])
def test_a_person_with_an_empty_home_runs_what_is_published(
    starter: str, published: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel, sdist = map(str, published)
    command = (*starter.replace("WHEEL", wheel).replace("SDIST", sdist).split(), "pointsman")
    cache = {"UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv"))}  # of this machine
    env = own_environment(tmp_path) | cache
    version = subprocess.run((*command, "--version"), cwd=tmp_path, env=env, capture_output=True, text=True)
    assert version.stdout == f"pointsman, version {__version__}\n", version.stderr


@pytest.mark.parametrize("command", [("-m", "pointsman", "--help"), ("-m", "pointsman", "--version")])
def test_what_is_in_the_wheel_is_enough_to_run(
    published: tuple[Path, Path], tmp_path: Path, command: tuple[str, ...]
) -> None:
    with zipfile.ZipFile(published[0]) as archive:
        archive.extractall(tmp_path)
    ours_first = os.environ | {"PYTHONPATH": str(tmp_path)}
    asked = "import pointsman.router.cli.main as main; print(main.__file__)"
    where = subprocess.run((sys.executable, "-P", "-c", asked), env=ours_first, capture_output=True, text=True)
    assert where.stdout.startswith(str(tmp_path))
    run = subprocess.run((sys.executable, "-P", *command), env=ours_first, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "pointsman" in run.stdout


def test_the_first_search_of_an_installed_pointsman_finds_its_documentation(
    published: tuple[Path, Path], tmp_path: Path
) -> None:
    with zipfile.ZipFile(published[0]) as archive:
        archive.extractall(tmp_path)
    env = os.environ | {"PYTHONPATH": str(tmp_path), "SEARCH_DB_PATH": str(tmp_path / "archive.db")}
    command = (sys.executable, "-P", "-m", "pointsman", "archive", "search", "--json", "create a token")
    run = subprocess.run(command, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["results"][0]["document"] == "README.md"


def test_the_release_workflow_accepts_the_tag_of_this_version_and_no_other() -> None:
    [step] = re.findall(r"run: (test \"\$TAG\".*)", (ROOT / ".github/workflows/release.yml").read_text())
    step = step.replace(".venv/bin/pointsman", f"{sys.executable} -m pointsman")

    def accepts(tag: str) -> bool:
        return subprocess.run(("bash", "-c", step), env=os.environ | {"TAG": tag}).returncode == 0

    assert accepts(f"v{__version__}")
    assert not accepts("v0.0.1")
