"""State that gateways share: key-values, the replicas that live, ended sessions, what was learnt from usage."""
