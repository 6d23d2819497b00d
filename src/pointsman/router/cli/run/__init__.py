"""Commands that run a process: the gateway, its stdio bridge, the search service, and the gateway as a service."""
