"""HTTP: the protocol with its limits, headers, identity, message bodies, refusals and streams."""
