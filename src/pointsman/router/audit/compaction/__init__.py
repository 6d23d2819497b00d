"""Moves the journal into the database, in a thread or a process, and deletes old rows."""
