"""The lists that servers give: fetched, cached, and remembered."""
