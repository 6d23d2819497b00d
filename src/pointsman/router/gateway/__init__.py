"""Between the front and the servers: rights, lists, and the handlers of requests."""
