"""What a project has learned: discoveries, sessions and snippets of code, and how they are found again."""
