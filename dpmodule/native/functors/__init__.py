"""Ready-made functors: in C++ where the extension is here, in Python otherwise."""
