"""Where there is no configuration yet, a command that serves makes one."""

from __future__ import annotations

import os
from pathlib import Path

from pointsman.config.paths import find_config, user_config
from pointsman.config.sample import GATEWAY, write_sample
from pointsman.config.settings import Settings
from pointsman.router.cli.options import CommandError


def find_or_make_config(option: Path | None, settings: Settings, sample: str = GATEWAY) -> tuple[Path, str | None]:
    """The file, and the secret of the first token if the file had to be made."""
    found = find_config(option, settings, os.environ, Path.cwd())
    if found is not None:
        return found, None
    path = user_config(settings, os.environ)
    try:
        return path, write_sample(path, sample)
    except FileExistsError:  # another start was faster by a moment; its token is shown there
        return path, None
    except OSError as error:
        raise CommandError(
            f"No configuration was found, and a first one cannot be written to {path}: {error.strerror}. "
            "Name a file with --config, or a folder that can be written with POINTSMAN_CONFIG_DIR."
        ) from error
