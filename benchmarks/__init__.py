"""Comparisons of dpmodule with what users would otherwise run; `python -m benchmarks` runs them all."""
