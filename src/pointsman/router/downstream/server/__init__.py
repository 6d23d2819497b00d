"""One server through all its connections: supervision, leases, deadlines, starts."""
