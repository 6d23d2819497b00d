"""What both engines share: one text of SQL for SQLite and PostgreSQL, on the interface in `database.py`."""
