"""Parts of the suite; each module here has a function `run` that takes a `Session` and returns a `Section`."""
