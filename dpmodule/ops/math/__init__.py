"""Arithmetic, comparison, elementwise functions, reductions, products and linear algebra."""
