"""The tools of the archive, one module each; every module exports `TOOL`."""
