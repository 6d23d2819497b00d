"""Search for whole documents: typos corrected, terms matched across passages, matches highlighted."""
