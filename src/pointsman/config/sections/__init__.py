"""The sections of the YAML file as frozen models, and the types of their values."""
