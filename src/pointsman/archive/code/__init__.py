"""Reads and searches the code of a project: guarded file access, imports and grep. Independent of the store."""
