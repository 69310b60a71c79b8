import copy
import pickle

import pytest

from dpmodule.agents import DialogTeacher, RepeatLabelAgent, create_agent_from_shared, create_task
from dpmodule.agents.batch_world import with_numbers
from helpers.talks import Noting, NotingBatch, Texts, epoch, finish, spec, texts_of

TASK = spec(Texts, "a-3-1-2-0-5")
TEXTS = sorted(f"{e}.{i}" for e, length in enumerate((3, 1, 2, 0, 5)) for i in range(length))


def numbers(messages):
    return sorted(text.split()[1] for text in texts_of(messages))


def create_teacher(datatype, **opt):
    return Texts({"task": TASK, "task_arguments": "a-3-1-2-0-5", "datatype": datatype, **opt})


def test_a_stream_keeps_nothing_in_memory_and_can_be_sent_to_another_process():
    teacher = create_teacher("valid:stream")
    teacher.act()
    assert not hasattr(teacher.data, "data")
    assert (teacher.num_examples(), teacher.num_episodes()) == (11, 4)
    sent = pickle.loads(pickle.dumps(teacher.share()["data"]))
    again = create_agent_from_shared({**teacher.share(), "data": sent})
    while not teacher.episode_done:
        teacher.act()
    assert again.act()["text"].startswith("a 1.0")


@pytest.mark.parametrize(("workers", "rows"), [(2, 1), (2, 2), (3, 2), (4, 1)])
@pytest.mark.parametrize("datatype", ["valid", "valid:stream"])
def test_workers_share_the_episodes_of_a_stream(workers, rows, datatype):
    """As Hogwild makes them: a copy for each worker, and of that a copy for each row."""
    original = create_teacher(datatype, numthreads=workers)
    copies = []
    for worker in range(workers):
        own = create_agent_from_shared(with_numbers(original.share(), {"threadindex": worker}))
        assert (own.data is original.data) is (datatype == "valid")
        shares = (with_numbers(own.share(), {"batchindex": row}) for row in range(rows))
        copies += map(create_agent_from_shared, shares)
    seen = []
    while not all(each.epoch_done() for each in copies):
        seen += [each.act() for each in copies if not each.epoch_done()]
    assert numbers(seen) == TEXTS


@pytest.mark.parametrize(("workers", "rows", "mode"), [(2, 1, "fork"), (2, 3, "thread"), (4, 2, "thread")])
@pytest.mark.parametrize("datatype", ["valid", "valid:stream"])
@pytest.mark.parametrize("task", [TASK, f"{TASK},{TASK}"])
def test_hogwild_workers_count_every_example_once(workers, rows, mode, datatype, task):
    opt = {"task": task, "datatype": datatype, "numthreads": workers, "batchsize": rows}
    opt |= {"hogwild_mode": mode, "batch_sort": True}
    with create_task(opt, RepeatLabelAgent(opt)) as world:
        for _ in range(2):
            finish(world)
            report = world.report()
            assert (report["total"], report["accuracy"]) == (len(TEXTS) * (1 + task.count(",")), 1.0)
            world.reset()


@pytest.mark.parametrize("datatype", ["train:ordered", "train:stream", "train:ordered:stream"])
def test_training_in_order_goes_round(datatype):
    teacher = create_teacher(datatype)
    seen, ends = [], []
    for _ in range(22):
        seen.append(teacher.act())
        ends.append(teacher.epoch_done())
    assert numbers(seen[:11]) == numbers(seen[11:]) == TEXTS
    assert [place for place, is_end in enumerate(ends) if is_end] == [10, 21]


def test_memory_holds_candidates_once_for_all_copies():
    class Choices(DialogTeacher):
        def setup_data(self, path):
            for number in range(3):
                yield (str(number), ["a"]), True

        def label_candidates(self):
            return ["a", "b"]

    teacher = Choices({"datatype": "valid"})
    offered = [teacher.act()["label_candidates"] for _ in range(3)]
    assert offered[0] is offered[1] is offered[2]


@pytest.mark.parametrize("stream", ["", ":stream"])
@pytest.mark.parametrize("kind", [Noting, NotingBatch])
def test_a_file_named_behind_the_task(tmp_path, stream, kind):
    path = tmp_path / "talk.txt"
    path.write_text("1 a\tb\n2 c\td\n1 e\tf\n")
    opt = {"task": f"dpmodule.agents:FbDialogTeacher:{path}", "datatype": f"test{stream}"}
    opt["batchsize"] = 2 if kind is NotingBatch else 1
    before = copy.deepcopy(opt)
    world, student, _ = epoch(opt, kind(opt))
    assert texts_of(student.seen) == ["a", "c", "e"]
    world.shutdown()
    assert opt == before
