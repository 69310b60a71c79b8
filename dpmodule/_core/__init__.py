"""Private foundations: late imports, MXNet's import paths, private functions of torch, flags of threads, HTML."""
