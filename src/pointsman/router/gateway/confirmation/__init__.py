"""Confirmation: the calls that need a person's yes, the question, and the answers that are kept."""
