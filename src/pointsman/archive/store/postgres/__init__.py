"""The store in PostgreSQL with pgvector: several archives on several machines use one."""
