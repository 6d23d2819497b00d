"""`make soak`: whether a gateway stays correct and its memory flat under a long, mixed load."""
