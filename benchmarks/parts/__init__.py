"""Parts of the suite; each module has a function `run` that takes a `Session` and returns a `Section`."""
