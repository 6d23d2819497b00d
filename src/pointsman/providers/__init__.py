"""Search providers: text in, scores out."""
