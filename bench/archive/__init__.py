"""What the archive's tools cost, and how well they correct typos."""
