"""Python side of the graph and engine in C++ (`dpmodule/native/autobatch`)."""
