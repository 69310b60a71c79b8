"""Places of a teacher's copies: noted while they ask, and gone on from by another teacher."""

import pytest

from dpmodule.agents import RepeatLabelAgent, create_task
from dpmodule.agents.episode_places import EpisodePlaces
from dpmodule.agents.teachers import FixedDialogTeacher
from dpmodule.base import ArgumentError


class Threes(FixedDialogTeacher):
    """Episodes of three examples."""

    def get(self, episode_idx, entry_idx=0):
        text = f"{episode_idx} {entry_idx}"
        return {"text": text, "labels": [text], "episode_done": entry_idx == 2}

    def num_episodes(self):
        return 5

    def num_examples(self):
        return 15


def asked(teacher, count):
    return [teacher.act()["text"] for _ in range(count)]


@pytest.mark.parametrize("before", [0, 1, 2, 3, 7, 14])
def test_another_teacher_goes_on_within_the_episode(before):
    opt = {"task": "threes", "datatype": "train:ordered"}
    expected = asked(Threes(opt), 15)
    first = Threes({**opt, "places": {}})
    assert asked(first, before) == expected[:before]
    second = Threes({**opt, "places": {"threes": first.places_dict()}})
    assert asked(second, 15 - before) == expected[before:]
    assert second.epoch_done()
    assert Threes(opt).places_dict() is None


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_and_workers_have_places_of_their_own(workers):
    opt = {
        "task": "reverse",
        "datatype": "train:ordered",
        "batchsize": 2,
        "numthreads": workers,
        "places": {},
    }
    opt |= {"hogwild_mode": "thread", "batch_sort": False}
    with create_task(opt, RepeatLabelAgent(opt)) as world:
        for _ in range(3):
            world.parley()
        world.report()
        place = world.get_agents()[0].places_dict()
    assert place["index"] == 6
    assert len(place["rows"]) == 2 * workers
    assert sorted(row[0] for row in place["rows"])[-2:] == [4, 5]
    with pytest.raises(ArgumentError, match=f"places are those of {2 * workers} copies, and there are 3"):
        EpisodePlaces(3, place["rows"])
