import pickle

from dpmodule.agents import create_agent_from_shared
from helpers.talks import Texts, spec


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
