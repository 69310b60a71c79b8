import numpy as np
import pytest

from dpmodule.io.std_random import StdRandom


def test_words_are_those_of_the_mersenne_twister():
    # std::mt19937 seeded with 5489 gives 4123659995 as its ten thousandth number
    rng = StdRandom(5489)
    assert [rng._word() for _ in range(10000)][-1] == 4123659995


def test_distributions():
    rng = StdRandom(2)

    def draw(call, *given):
        return np.array([call(*given) for _ in range(5000)])

    whole = np.bincount(draw(rng.whole, 2, 6), minlength=7)
    assert whole[:2].sum() == 0
    assert (np.abs(whole[2:] - 1000) < 150).all()
    assert rng.whole(3, 3) == 3
    uniform, normal = draw(rng.uniform, -1, 3), draw(rng.normal)
    assert -1 <= uniform.min() < uniform.max() < 3
    assert uniform.mean() == pytest.approx(1, abs=0.1)
    assert normal.mean() == pytest.approx(0, abs=0.07)
    assert normal.std() == pytest.approx(1, abs=0.05)
    assert draw(rng.coin).mean() == pytest.approx(0.5, abs=0.03)
    assert sorted(rng.shuffled(50)) == list(range(50))
