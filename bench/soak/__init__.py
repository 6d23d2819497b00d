"""`make soak`: does a gateway stay right and small under a long, mixed load?"""
