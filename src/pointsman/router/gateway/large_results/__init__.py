"""Large results: stored in the state folder, shown as a preview, and read in slices."""
