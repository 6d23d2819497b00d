"""Search by words and by meaning, as one ranking."""
