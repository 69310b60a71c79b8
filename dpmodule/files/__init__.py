"""Writing files so that a kill at any moment leaves the old or the new, and telling what a file is."""
