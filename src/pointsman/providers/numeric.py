"""numpy as a gateway needs it."""

from __future__ import annotations

import os
import sys

_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy with a single thread for linear algebra, unless the operator says otherwise.

    Our matrices are small: more threads only wait for one another, and on a busy machine they wait long. The setting
    is read when numpy is loaded and is nobody else's business, so it does not stay in the environment.
    """
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_THREADS]
