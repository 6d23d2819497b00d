"""What happened: journal, database, reading it back."""
