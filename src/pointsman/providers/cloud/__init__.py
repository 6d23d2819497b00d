"""The provider that asks a search service over HTTP."""
