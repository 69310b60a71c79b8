"""Programs for one example with the interface of a module."""
