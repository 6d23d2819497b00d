"""What a document refers to, read from its text. Pure: no I/O, no clock."""
