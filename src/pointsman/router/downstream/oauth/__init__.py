"""Sign-in towards servers with a `url` (OAuth 2.1), imported only when an entry has `oauth`."""
