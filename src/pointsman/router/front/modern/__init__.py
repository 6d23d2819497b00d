"""The modern era (2026-07-28): requests that stand alone, parked calls, subscriptions/listen."""
