"""The archive's storage. All SQL is in this package."""
