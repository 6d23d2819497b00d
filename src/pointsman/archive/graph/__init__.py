"""A citation graph drawn as SVG."""
