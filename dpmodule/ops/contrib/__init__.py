"""Operators that users call as ``mx.sym.contrib.*`` and ``mx.nd.contrib.*``: importing this package declares them."""
