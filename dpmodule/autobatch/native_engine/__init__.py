"""The graph and the engine in C++ (`dpmodule/native/autobatch`), as Python sees them."""
