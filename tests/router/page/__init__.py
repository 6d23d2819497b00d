"""The page, over HTTP and in a browser."""
