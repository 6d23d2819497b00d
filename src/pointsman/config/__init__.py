"""What operators write: the YAML model, its loading, the environment."""
