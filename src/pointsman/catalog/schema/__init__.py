"""What a tool's schema says: checks of arguments with a bounded cost, and the signature in one line."""
