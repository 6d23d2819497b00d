"""The configuration: what operators write in YAML and in the environment, validated and frozen."""

import os

# To look for plugins of pydantic, which nobody has, would read the metadata of all installed packages at each start.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
