"""What a project has learned: discoveries, sessions and code snippets; import and search."""
