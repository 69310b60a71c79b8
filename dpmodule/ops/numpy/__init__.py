"""Operators of networks exported under ``npx.set_np()``: names with ``_np_`` and ``_npi_``, and NumPy's rules.

Arrays without axes are scalars, arrays may be empty, operands of different types are promoted, comparisons give
booleans. A graph with one of these operators is in NumPy's meaning of shapes (`graph.Graph.is_numpy`).
"""
