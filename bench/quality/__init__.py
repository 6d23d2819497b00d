"""Does search find the right tool? Measured on public sets of tools and requests."""
