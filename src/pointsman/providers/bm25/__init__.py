"""The local search provider: BM25 over the words of tools, with static embeddings where they are loaded."""
