from dpmodule.io.std_random import StdRandom


def test_words_are_those_of_the_mersenne_twister():
    # std::mt19937 seeded with 5489 gives 4123659995 as its ten thousandth number
    rng = StdRandom(5489)
    assert [rng._word() for _ in range(10000)][-1] == 4123659995
