"""The commands of `pointsman archive`."""
