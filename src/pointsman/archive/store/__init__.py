"""Where the archive keeps what it knows. No SQL outside this package."""
