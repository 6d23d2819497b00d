"""Sign-in: who a caller is, by tokens of issuers, and the documents that this needs."""
