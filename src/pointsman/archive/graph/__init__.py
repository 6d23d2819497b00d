"""A citation graph as a picture."""
