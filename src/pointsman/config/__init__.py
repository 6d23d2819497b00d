"""The configuration: what operators write in YAML and in the environment, validated and frozen."""
