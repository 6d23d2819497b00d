"""The official conformance suite, run against the gateway and against the server that it is given to carry."""
