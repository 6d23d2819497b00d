"""The search service, over HTTP against the real process."""
