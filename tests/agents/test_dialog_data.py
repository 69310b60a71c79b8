import pickle

from dpmodule.agents import DialogData, StreamDialogData, create_agent_from_shared
from helpers.talks import Texts, spec


def loader(path):
    cands = ["yes", "no"]
    yield ("is it", ["yes"], 1.0, cands), True
    yield ("or not", ("no",), None, list(cands)), False
    yield ("is it", "yes", 0.5), True


def numbered(path):
    for number in range(path or 4):
        yield (f"{number}.0",), True
        yield (f"{number}.1",), False


def test_equal_texts_and_candidates_are_stored_once_for_all_copies():
    data = DialogData({}, loader)
    (first, second), (third,) = data.data
    assert first["label_candidates"] is second["label_candidates"]
    assert first["text"] is third["text"]
    assert first["labels"] is third["labels"]
    copy = DialogData({}, shared=data.share())
    assert copy.data is data.data
    assert copy.num_examples() == 3


def test_candidates_of_all_examples():
    entries = [
        *(("a", "b"), ("c", "d", None, ["d", "e"]), ("e", ["d", "a", "f"])),
        {"text": "f", "eval_labels": "g"},
        ("a", ["b", "z"], None, ["b"]),  # only the first label has to be a candidate
        ("c", [], None, ["b"]),
    ]
    kinds = (DialogData, StreamDialogData)
    data, stream = (kind({}, lambda path: zip(entries, [True] * 6), cands=["a", "b", "a"]) for kind in kinds)
    assert data.get(0)[0]["label_candidates"] is data.cands
    expected = [("a", "b"), ("d", "e"), ("a", "b", "d", "f"), ("a", "b", "g"), ("b",), ("b",)]
    assert [data.get(number)[0]["label_candidates"] for number in range(6)] == expected
    assert [stream.get()[0]["label_candidates"] for _ in range(6)] == expected


def test_a_stream_reads_an_episode_at_a_time():
    read = []

    def noting(path):
        for entry, begins in numbered(path):
            read.append(entry[0])
            yield entry, begins

    stream = StreamDialogData({}, noting)
    episode, is_last = stream.episode(0)
    assert ([each["text"] for each in episode], is_last) == (["0.0", "0.1"], False)
    assert len(read) <= 5, "this episode, the next, and the line that shows the end of that"
    assert (stream.episode(3), stream.episode(4)) == ((({"text": "3.0"}, {"text": "3.1"}), True), ((), True))
    assert stream.episode(1)[0][0]["text"] == "1.0", "a lower number begins anew"


def test_a_stream_goes_round_and_knows_its_end():
    stream = StreamDialogData({"datafile": 3}, numbered)
    assert not stream.ends_before(0)
    found = [stream.episode(number, loop=True)[0][0]["text"] for number in (0, 2, 3, 7, 8)]
    assert found == ["0.0", "2.0", "0.0", "1.0", "2.0"]
    stream = StreamDialogData({"datafile": 3}, numbered)
    stream.episode(2)
    assert stream.ends_before(3)
    assert (stream.num_episodes(), stream.num_examples()) == (3, 6)
    stream = StreamDialogData({"datafile": 1}, numbered)
    assert [stream.get() for _ in range(3)][::2] == [({"text": "0.0", "episode_done": False}, False)] * 2
    assert StreamDialogData({}, lambda path: []).get() == ({"episode_done": True}, True)


def test_a_stream_keeps_nothing_in_memory_and_can_be_sent_to_another_process():
    teacher = Texts({"task": spec(Texts), "task_arguments": "a-3-1-2-0-5", "datatype": "valid:stream"})
    teacher.act()
    assert not hasattr(teacher.data, "data")
    assert (teacher.num_examples(), teacher.num_episodes()) == (11, 4)
    sent = pickle.loads(pickle.dumps(teacher.share()["data"]))
    again = create_agent_from_shared({**teacher.share(), "data": sent})
    while not teacher.episode_done:
        teacher.act()
    assert again.act()["text"].startswith("a 1.0")
