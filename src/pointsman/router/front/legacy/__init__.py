"""The legacy era (2024-11-05 to 2025-11-25): sessions, replay, questions and the old SSE transport."""
