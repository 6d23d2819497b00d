"""Embeds texts with a configurable provider."""
