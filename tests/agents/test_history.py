import pytest

from dpmodule.agents.history import History
from dpmodule.agents.squash import flatten

TALK = [{"text": f"x{i}", "labels": [f"y{i}"]} for i in range(1, 5)]


@pytest.mark.parametrize("length", [-1, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("labels", [True, False])
def test_an_episode_reads_as_its_squashed_examples_do(length, labels):
    history = History({"context_length": length, "include_labels": labels})
    found = []
    for _ in range(2):  # nothing of an episode is left for the next
        for place, each in enumerate(TALK):
            found.append(history.extended({**each, "episode_done": place == len(TALK) - 1})["text"])
    assert found == [each["text"] for each in flatten([TALK, TALK], length, labels)]


def test_an_end_without_text_ends_an_episode():
    history = History({})
    history.extended({"text": "a", "episode_done": False})
    assert history.extended({"episode_done": True}) == {"episode_done": True}
    assert history.extended({"text": "b", "episode_done": True})["text"] == "b"


def test_observations_are_left_as_they_are():
    history = History({})
    history.extended({"text": "a", "episode_done": False})
    given = {"text": "b", "episode_done": False}
    assert history.extended(given)["text"] == "a\nb"
    assert given["text"] == "b"
    history.clear()
    assert history.extended(given) is given
