"""What exists and who may use it: collect, filter, search, resolve."""
