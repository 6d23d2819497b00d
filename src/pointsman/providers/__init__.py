"""Search providers: they get text and return scores."""
