"""The package of the version before, for tests of an update while the others go on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

BEFORE = "06c4e2052ccf2b289a5229581b339f1f1e3c0d80"  # the commit from which on there are replicas
_ROOT = Path(__file__).parents[1]


def unpack_earlier(folder: Path) -> Path:
    """Where it is in `folder`: for PYTHONPATH."""
    archived = subprocess.run(
        ["git", "archive", BEFORE, "src"], cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    if archived.returncode != 0:
        pytest.skip(f"the checkout has no history with the commit {BEFORE[:8]}, which is the version before")
    subprocess.run(["tar", "-x"], cwd=folder, input=archived.stdout, check=True)
    return folder / "src"
