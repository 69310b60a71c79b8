"""Probability densities, against closed forms."""

import math

import numpy as np

from helpers.op_case import OpCase

RANDOM = np.random.RandomState(3)
SAMPLE, COUNT = RANDOM.uniform(0.5, 2, (2, 3)), RANDOM.randint(0, 5, (2, 3)).astype("f8")
ONE, TWO = np.array([0.6, 1.7]), np.array([1.2, 0.4])
CHANCE = np.array([0.3, 0.8])
MIX = RANDOM.dirichlet([1, 2, 3], (2, 3))
lgamma = np.vectorize(math.lgamma)


def column(function):
    return lambda sample, *parameters: function(sample, *(p[:, None] for p in parameters))


def binomial(x, k, p):
    return np.exp(lgamma(x + k) - lgamma(x + 1) - lgamma(k)) * p**k * (1 - p) ** x


def dirichlet(x, alpha):
    alpha = alpha[:, None]
    norm = np.exp(lgamma(alpha.sum(-1)) - lgamma(alpha).sum(-1))
    return norm * np.prod(x ** (alpha - 1), -1)


CASES = [
    OpCase(
        "_random_pdf_uniform",
        (SAMPLE, ONE, ONE + 2),
        {},
        column(lambda x, low, high: np.ones_like(x) / (high - low)),
        grad=(1, 2),
    ),
    OpCase(
        "_random_pdf_normal",
        (SAMPLE, ONE, TWO),
        {},
        column(lambda x, m, s: np.exp(-((x - m) ** 2) / (2 * s * s)) / np.sqrt(2 * np.pi) / s),
    ),
    OpCase(
        "_random_pdf_gamma",
        (SAMPLE, ONE, TWO),
        {},
        column(lambda x, a, b: b**a * x ** (a - 1) * np.exp(-b * x) / np.exp(lgamma(a))),
    ),
    OpCase(
        "_random_pdf_exponential", (SAMPLE, ONE), {"is_log": True}, column(lambda x, r: np.log(r) - r * x)
    ),
    OpCase(
        "_random_pdf_poisson",
        (COUNT, ONE),
        {},
        column(lambda x, m: m**x * np.exp(-m) / np.exp(lgamma(x + 1))),
        grad=(1,),
    ),
    OpCase("_random_pdf_negative_binomial", (COUNT, ONE, CHANCE), {}, column(binomial), grad=(1, 2)),
    OpCase(
        "_random_pdf_generalized_negative_binomial",
        (COUNT, ONE, TWO),
        {},
        column(lambda x, m, a: binomial(x, 1 / a, 1 / (m * a + 1))),
        grad=(1, 2),
    ),
    OpCase("_random_pdf_dirichlet", (MIX, RANDOM.uniform(0.5, 3, (2, 3))), {}, dirichlet),
]
