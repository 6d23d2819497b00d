"""The tools of the archive, one module for each family; `registry` lists them."""
