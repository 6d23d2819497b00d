"""Search for whole documents: slips corrected, words of different passages brought together, places marked."""
