"""The catalog: what exists and who may use it. Collects, filters, searches and resolves tools."""
