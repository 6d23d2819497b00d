"""For operators: metrics, health, doctor; and what the catalog learns from usage."""
