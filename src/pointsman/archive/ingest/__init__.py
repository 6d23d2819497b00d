"""From folders of files to documents in the store."""
