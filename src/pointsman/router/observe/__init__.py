"""What operators see: metrics, health, usage, doctor."""
