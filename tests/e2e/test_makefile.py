"""`make run` without uv: says what it does, heals an environment that does not work, and names Debian's package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

# Stands for the system Python. While `broken` exists, its `venv` fails as on Debian without python3-venv; afterwards it
# makes an environment whose programs write down how they were called.
PYTHON = f"""#!/bin/sh
case "$1 $2" in
  "-m venv")
    mkdir -p .venv/bin
    printf '#!/bin/sh\\necho "python $*" >> calls\\n' > .venv/bin/python
    chmod +x .venv/bin/python
    if [ -e broken ]; then
      printf '#!/bin/sh\\nexit 1\\n' > .venv/bin/python
      echo "The virtual environment was not created successfully because ensurepip is not available." >&2
      exit 1
    fi
    printf '#!/bin/sh\\necho "pointsman $*" >> calls\\n' > .venv/bin/pointsman
    chmod +x .venv/bin/pointsman ;;
  *) exec {sys.executable} "$@" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "system-python").write_text(PYTHON)
    (tmp_path / "system-python").chmod(0o755)
    return tmp_path


def make_run(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = ("make", "run", "UV=", "PYTHON=./system-python")
    outside = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=60, env=outside)


def calls(checkout: Path) -> list[str]:
    return (checkout / "calls").read_text().splitlines()


def test_a_python_without_venv_is_named_with_its_package_and_the_next_run_heals(checkout: Path) -> None:
    (checkout / "broken").touch()
    failed = make_run(checkout)
    assert failed.returncode != 0
    assert f"apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv" in failed.stderr
    assert not (checkout / ".venv").exists()
    (checkout / "broken").unlink()
    assert make_run(checkout).returncode == 0
    assert calls(checkout)[-1] == "pointsman serve"


def test_an_environment_without_pip_is_made_anew(checkout: Path) -> None:
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").write_text("#!/bin/sh\nexit 1\n")
    (checkout / ".venv/bin/python").chmod(0o755)
    assert make_run(checkout).returncode == 0
    assert calls(checkout)[-1] == "pointsman serve"


def test_the_first_run_installs_the_runtime_only_and_says_so_and_later_runs_are_silent(checkout: Path) -> None:
    first = make_run(checkout)
    assert [line[:5] for line in first.stdout.splitlines()[1:]] == ["  1/3", "  2/3", "  3/3"]
    assert "packages from requirements.lock" in first.stdout
    installs = [call for call in calls(checkout) if " install " in call]
    assert len(installs) == 2
    assert "--require-hashes --requirement requirements.lock" in installs[0]
    assert "requirements-dev" not in "".join(installs)
    again = make_run(checkout)
    assert again.stdout == ""
    assert calls(checkout)[-1] == "pointsman serve"


def test_an_environment_whose_programs_no_longer_start_is_made_anew(checkout: Path) -> None:
    make_run(checkout)
    for program in ("python", "pointsman"):
        (checkout / ".venv/bin" / program).write_text("#!/no/such/interpreter\n")
    assert "1/3" in make_run(checkout).stdout
    assert calls(checkout)[-1] == "pointsman serve"


def test_the_runtime_has_no_package_that_downloads_models() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    for name in ("huggingface-hub", "hf-xet"):
        assert f"\n{name}==" not in lock
    assert "\ntokenizers==" in lock
    assert "\npypdf==" in lock  # the README promises PDF
