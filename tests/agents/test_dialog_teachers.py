import copy
import pickle

import pytest

from dpmodule.agents import (
    DialogTeacher,
    FbDialogTeacher,
    FixedDialogTeacher,
    RepeatLabelAgent,
    create_agent_from_shared,
    create_task,
)
from dpmodule.agents.batch_world import with_numbers
from dpmodule.base import ArgumentError
from helpers.talks import Noting, NotingBatch, Texts, epoch, spec, texts_of

TASK = spec(Texts, "a-3-1-2-0-5")
TEXTS = sorted(f"{e}.{i}" for e, length in enumerate((3, 1, 2, 0, 5)) for i in range(length))


def numbers(messages):
    return sorted(text.split()[1] for text in texts_of(messages))


def create_teacher(datatype, shared=None, **opt):
    given = {"task": TASK, "task_arguments": "a-3-1-2-0-5", "datatype": datatype, **opt}
    return Texts(given) if shared is None else create_agent_from_shared(shared)


@pytest.mark.parametrize("datatype", ["valid", "test", "valid:stream", "test:stream"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 20])
@pytest.mark.parametrize("sort", [True, False])
def test_every_example_is_seen_exactly_once(datatype, rows, sort):
    opt = {"task": TASK, "datatype": datatype, "batchsize": rows, "batch_sort": sort}
    world, student, _ = epoch(opt)
    assert numbers(student.seen) == TEXTS
    assert world.report()["total"] == world.num_examples() == len(TEXTS)
    student.seen.clear()
    world.reset()
    while not world.epoch_done():
        world.parley()
    assert numbers(student.seen) == TEXTS, "another epoch is whole, too"


def test_a_stream_keeps_nothing_in_memory():
    teacher = create_teacher("valid:stream")
    teacher.act()
    assert not hasattr(teacher.data, "data")
    assert (teacher.num_examples(), teacher.num_episodes()) == (11, 4)


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("datatype", ["valid", "valid:stream"])
def test_workers_share_the_episodes_of_a_stream(workers, rows, datatype):
    """As Hogwild makes them: a copy for each worker, and of that a copy for each row."""
    original = create_teacher(datatype, numthreads=workers)
    copies = []
    for worker in range(workers):
        own = create_teacher(datatype, with_numbers(original.share(), {"threadindex": worker}))
        assert own.data is not original.data or datatype == "valid"
        shares = (with_numbers(own.share(), {"batchindex": row}) for row in range(rows))
        copies += [create_teacher(datatype, shared) for shared in shares]
    seen = []
    while not all(each.epoch_done() for each in copies):
        seen += [each.act() for each in copies if not each.epoch_done()]
    assert numbers(seen) == TEXTS


@pytest.mark.parametrize(
    ("workers", "rows", "mode"), [(2, 1, "fork"), (2, 3, "thread"), (4, 2, "thread"), (3, 1, "thread")]
)
@pytest.mark.parametrize("datatype", ["valid", "valid:stream"])
@pytest.mark.parametrize("task", [TASK, f"{TASK},{TASK}"])
def test_hogwild_workers_count_every_example_once(workers, rows, mode, datatype, task):
    opt = {
        "task": task, "datatype": datatype, "numthreads": workers, "batchsize": rows, "hogwild_mode": mode,
        "batch_sort": True,
    }  # fmt: skip
    with create_task(opt, RepeatLabelAgent(opt)) as world:
        for _ in range(2):
            while not world.epoch_done():
                world.parley()
            assert world.report()["total"] == len(TEXTS) * (1 + task.count(","))
            assert world.report()["accuracy"] == 1.0
            world.reset()


def test_the_data_of_a_stream_can_be_sent_to_another_process():
    original = create_teacher("valid:stream")
    original.act()
    sent = pickle.loads(pickle.dumps(original.share()["data"]))
    again = create_teacher("valid:stream", {**original.share(), "data": sent})
    while not original.episode_done:
        original.act()
    assert again.act()["text"].startswith("a 1.0")


@pytest.mark.parametrize("datatype", ["train:ordered", "train:stream", "train:ordered:stream"])
def test_training_in_order_goes_round(datatype):
    teacher = create_teacher(datatype)
    seen, ends = [], []
    for _ in range(22):
        seen.append(teacher.act())
        ends.append(teacher.epoch_done())
    assert numbers(seen[:11]) == numbers(seen[11:]) == TEXTS
    assert [place for place, is_end in enumerate(ends) if is_end] == [10, 21]


def test_copies_of_a_teacher_share_its_data():
    original = create_teacher("valid")
    assert create_teacher("valid", original.share()).data is original.data


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


def test_a_teacher_without_data():
    with pytest.raises(NotImplementedError, match="setup_data"):
        DialogTeacher({})
    for method in ("get", "num_examples", "num_episodes"):
        with pytest.raises(NotImplementedError, match=method):
            getattr(FixedDialogTeacher({}), method)(*((0,) if method == "get" else ()))


@pytest.mark.parametrize("datatype", ["train:ordered", "train"])
def test_a_missing_label_in_training_names_teacher_and_example(tmp_path, datatype):
    path = tmp_path / "talk.txt"
    path.write_text("1 nothing to say\n")
    teacher = FbDialogTeacher({"task": "mine", "datatype": datatype, "datafile": str(path)})
    with pytest.raises(
        ArgumentError, match=r"teacher 'mine': the example 'nothing to say' has neither labels"
    ):
        teacher.act()


@pytest.mark.parametrize("stream", ["", ":stream"])
def test_a_file_named_behind_the_task(tmp_path, stream):
    path = tmp_path / "talk.txt"
    path.write_text("1 a\tb\n2 c\td\n1 e\tf\n")
    task = f"dpmodule.agents:FbDialogTeacher:{path}"
    for rows in (1, 2):
        opt = {"task": task, "datatype": f"test{stream}", "batchsize": rows}
        world, student, _ = epoch(opt, NotingBatch(opt) if rows > 1 else Noting(opt))
        assert texts_of(student.seen) == ["a", "c", "e"]
        world.shutdown()


def test_a_worlds_copy_of_options_is_its_own():
    opt = {"task": TASK, "datatype": "valid"}
    given = copy.deepcopy(opt)
    epoch(opt)
    assert opt == given
