"""The audit: an intent and an outcome per call, in a journal that is moved into SQLite."""
