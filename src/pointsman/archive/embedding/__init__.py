"""Texts to vectors, behind one small seam; which provider does it is a setting."""
