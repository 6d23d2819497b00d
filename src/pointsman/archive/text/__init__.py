"""Texts and their parts: headings, sections, passages; HTML and PDF as Markdown."""
