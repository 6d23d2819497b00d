"""Sign-ins of the owner to the page and to servers, and those of clients."""
