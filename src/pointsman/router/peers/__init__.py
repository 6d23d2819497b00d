"""Replicas of one gateway: who lives, and how a message reaches the one where the thing runs that it refers to."""
