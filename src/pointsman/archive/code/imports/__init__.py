"""What a source file imports, and which files of its project that is."""
