import random

import pytest

from dpmodule.agents import create_task
from dpmodule.agents.batch_world import best_window
from helpers.talks import Noting, NotingBatch, Texts, epoch, finish, spec

TASK = spec(Texts, "a-3-1-2-1-1-2")


def opt_of(rows, **more):
    return {"task": TASK, "datatype": "valid", "batchsize": rows, **more}


class Changing(NotingBatch):
    """Changes what it observes; copies know their row."""

    def observe(self, observation):
        return super().observe({"row": self.opt.get("batchindex"), **observation})


class Unused(Changing):
    use_batch_act = False
    act = Noting.act


def test_copies_observe_and_batch_act_is_that_of_the_original():
    for kind, batches in ((Changing, [[0, 1, 2]]), (Unused, [])):
        agent = kind(opt_of(3))
        world = create_task(opt_of(3), agent)
        world.parley()
        assert [[each["row"] for each in batch] for batch in agent.batches] == batches
        assert ([each["row"] for each in agent.seen], agent.observation) == ([0, 1, 2], None)
        asked = [row.get_acts()[0]["text"] for row in world.worlds]
        assert [row.get_agents()[1].observation["text"] for row in world.worlds] == asked
        assert [row.get_acts()[1]["text"] for row in world.worlds] == [text.split()[1] for text in asked]


def test_without_sorting_each_row_ends_its_episode_before_it_takes_a_new_one():
    given = opt_of(3, batch_sort=False)
    world = create_task(given, Noting(given))
    columns = [[] for _ in world.worlds]
    while not world.epoch_done():
        world.parley()
        for column, row in zip(columns, world.worlds):
            column += [row.get_acts()[0]["text"].split()[1]] if "text" in row.get_acts()[0] else []
    assert columns == [["0.0", "0.1", "0.2"], ["1.0", "3.0", "4.0"], ["2.0", "2.1", "5.0", "5.1"]]


# batches of a number of tokens


def tokens(budget, datatype="valid", **more):
    task = spec(Texts, "a-3-1-2-0-5-1-1-4-2-9-1-1")
    return {"task": task, "datatype": datatype, "max_batch_tokens": budget, **more}


def test_display_shows_every_row_or_the_last_batch():
    world = create_task(opt_of(2), Noting(opt_of(2)))
    world.parley()
    lines = world.display().splitlines()
    assert lines[0] == "[--batchsize 2--]"
    assert [line for line in lines if line.startswith("[batch")] == ["[batch world 0:]", "[batch world 1:]"]
    assert not world.episode_done()
    world = create_task(tokens(10), Noting(tokens(10)))
    assert world.display().splitlines()[0] == "[--batch of 0--]"
    world.parley()
    assert "a 0.0" in world.display()


@pytest.mark.parametrize(("budget", "more"), [(12, {}), (1000, {"batchsize": 3})])
def test_batches_stay_within_the_budget(budget, more):
    opt = tokens(budget, **more)
    _, student, parleys = epoch(opt, NotingBatch(opt))
    sizes = [[each["text"].count(" ") + 1 for each in batch] for batch in student.batches]
    assert len(sizes) == parleys
    for lengths in sizes:
        assert lengths == sorted(lengths)
        assert len(lengths) == 1 or (lengths[-1] + 1) * len(lengths) <= budget
    assert max(map(len, sizes)) == 3 if more else max(map(len, sizes)) > 1


@pytest.mark.parametrize("seed", range(40))
def test_the_window_is_the_fullest_there_is(seed):
    rng = random.Random(seed)
    lengths = sorted(rng.randrange(1, 12) for _ in range(rng.randrange(1, 12)))
    place, budget, most = rng.randrange(len(lengths)), rng.randrange(1, 60), rng.choice((2, 4, 100))
    spans = [(first, end) for first in range(place + 1) for end in range(place + 1, len(lengths) + 1)]
    fits = [(a, b) for a, b in spans if b - a <= most and (lengths[b - 1] + 1) * (b - a) <= budget]
    first, end = best_window(lengths, place, budget, most)
    if fits:
        assert (first, end) in fits
        assert sum(lengths[first:end]) == max(sum(lengths[a:b]) for a, b in fits)
    else:
        assert (first, end) == (place, place + 1)


def test_parley_init_chooses_the_tasks_of_each_row():
    given = opt_of(2, task=f"{spec(Texts, 'a-1-1-1-1')},{spec(Texts, 'b-1-1-1-1')}")
    world, firsts = create_task(given, Noting(given)), []
    for _ in range(4):
        world.parley()
        firsts.append("".join(row.get_acts()[0]["text"][0] for row in world.worlds))
    assert firsts == ["aa", "bb", "aa", "bb"]
    assert world.epoch_done()


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("rows", [2, 3, 4, 7, 10, 11])
def test_rows_past_the_end_are_observed_and_not_counted(rows, sort):
    given = opt_of(rows, batch_sort=sort)
    world, student, parleys = epoch(given, NotingBatch(given))
    late = [each for each in student.seen if "text" not in each]
    assert all(each == {"episode_done": True, "id": TASK} for each in late)
    assert len(student.seen) == parleys * rows == world.get_total_exs()
    assert world.report()["total"] == 10
    if sort:
        assert (parleys, len(late)) == (-(-10 // rows), -10 % rows)
    world.parley()
    assert world.report()["total"] == 10


def test_of_more_messages_than_rows_the_first_ones_count():
    given = opt_of(3, batch_sort=True)
    student = NotingBatch(given)
    student.batch_act = lambda rows: (*map(student.answer, rows), {"text": "more"}, None)
    world = epoch(given, student)[0]
    assert (world.report(), len(world.acts[1])) == ({"total": 10, "accuracy": 1.0, "f1": 1.0}, 3)


def test_reset_drops_what_waits_and_begins_again():
    student = NotingBatch(opt := tokens(12))
    world = create_task(opt, student)
    world.parley()
    world.reset()
    student.batches.clear()
    finish(world)
    assert sum(map(len, student.batches)) == world.num_examples()
