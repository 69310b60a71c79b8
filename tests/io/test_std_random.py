import numpy as np
import pytest

from dpmodule.io.std_random import StdRandom


def test_words_are_those_of_the_mersenne_twister():
    # std::mt19937 seeded with 5489 gives 4123659995 as its ten thousandth number
    rng = StdRandom(5489)
    words = [rng._word() for _ in range(10000)]
    assert words[-1] == 4123659995


def test_whole_numbers_cover_their_range():
    rng = StdRandom(1)
    found = np.bincount([rng.whole(2, 6) for _ in range(5000)], minlength=7)
    assert found[:2].sum() == 0
    assert (np.abs(found[2:] - 1000) < 150).all()
    assert rng.whole(3, 3) == 3


def test_distributions_have_their_moments():
    rng = StdRandom(2)
    uniform = np.array([rng.uniform(-1, 3) for _ in range(5000)])
    assert uniform.min() >= -1
    assert uniform.max() < 3
    assert uniform.mean() == pytest.approx(1, abs=0.1)
    normal = np.array([rng.normal() for _ in range(5000)])
    assert normal.mean() == pytest.approx(0, abs=0.07)
    assert normal.std() == pytest.approx(1, abs=0.05)
    assert np.mean([rng.coin() for _ in range(5000)]) == pytest.approx(0.5, abs=0.03)
    assert sorted(rng.shuffled(50)) == list(range(50))
