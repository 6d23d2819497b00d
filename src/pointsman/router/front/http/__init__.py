"""HTTP for both eras: the protocol and its limits, headers, authentication, requests, responses, event streams."""
