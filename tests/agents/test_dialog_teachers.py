import copy
import pickle

import pytest

from dpmodule.agents import create_agent_from_shared
from helpers.talks import Noting, NotingBatch, Texts, epoch, spec, texts_of

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


@pytest.mark.parametrize("datatype", ["train:ordered", "train:stream", "train:ordered:stream"])
def test_training_in_order_goes_round(datatype):
    teacher = create_teacher(datatype)
    seen, ends = [], []
    for _ in range(22):
        seen.append(teacher.act())
        ends.append(teacher.epoch_done())
    assert numbers(seen[:11]) == numbers(seen[11:]) == TEXTS
    assert [place for place, is_end in enumerate(ends) if is_end] == [10, 21]


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
