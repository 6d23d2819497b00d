"""The provider that lets a language model choose from a local shortlist."""
