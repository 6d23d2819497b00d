"""Commands that change the configuration, or connect clients to the gateway."""
