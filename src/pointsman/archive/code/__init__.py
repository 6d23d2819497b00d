"""Reading and searching the code of a project: the guard of its files, its imports, and grep. Knows no store."""
