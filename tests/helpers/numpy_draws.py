"""Distributions of MXNet's NumPy interface: operator, parameters, mean and variance."""

import math

EULER = 0.5772156649
DRAWS = [
    ("uniform", {"low": -1.0, "high": 3.0}, 1.0, 16 / 12),
    ("normal", {"loc": 2.0, "scale": 3.0}, 2.0, 9.0),
    ("gumbel", {"loc": 1.0, "scale": 2.0}, 1 + 2 * EULER, 4 * math.pi**2 / 6),
    ("logistic", {"loc": 1.0, "scale": 0.5}, 1.0, math.pi**2 / 12),
    ("laplace", {"loc": 1.0, "scale": 2.0}, 1.0, 8.0),
    ("exponential", {"scale": 2.0}, 2.0, 4.0),
    ("rayleigh", {"scale": 2.0}, 2 * math.sqrt(math.pi / 2), 4 * (4 - math.pi) / 2),
    ("weibull", {"a": 2.0}, math.gamma(1.5), math.gamma(2) - math.gamma(1.5) ** 2),
    ("pareto", {"a": 8.0}, 1 / 7, 8 / (49 * 6)),
    ("powerd", {"a": 2.0}, 2 / 3, 1 / 18),
    ("gamma", {"shape": 3.0, "scale": 2.0}, 6.0, 12.0),
]
