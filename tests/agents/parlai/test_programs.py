"""Programs of the form of ParlAI's users in 2018, run as they are by ``python -m dpmodule --as parlai``."""

import shutil
from pathlib import Path

import pytest

from helpers.programs import TESTS, run_module

SOURCE = TESTS / "programs" / "parlai"


@pytest.fixture
def run(tmp_path):
    for file in SOURCE.glob("*.py"):
        shutil.copy(file, tmp_path)

    def run(*words):
        done = run_module("dpmodule", "--as", "parlai", *map(str, words), cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def final(out):
    return next(line for line in out.splitlines() if line.startswith("FINAL")).split()[1:]


@pytest.mark.parametrize(
    ("agent", "words", "least"),
    [
        ("Majority", [], 0.1),
        ("Overlap", ["-hist", 4], 1.0),
        ("Bag", ["-e", 40, "--hiddensize=8", "-bs", 4, "-bsrt", "no"], 1.0),
        ("Tally", ["-nt", 2], 0.0),
        ("Memory", ["--memsize", 100], 0.5),
    ],
)
def test_agents_train_in_parlais_loop(agent, words, least, run, tmp_path):
    words = [
        "-m",
        f"talk_agents:{agent}Agent",
        "-mf",
        f"m/{agent}",
        "-dp",
        "data",
        "-dt",
        "train:ordered",
        *words,
    ]
    out = run("train.py", *words)
    valid, accuracy, test = final(out)
    assert (valid, test) == ("24", "12")
    assert float(accuracy) >= least
    assert "[ new best accuracy" in out
    assert Path(tmp_path, f"m/{agent}.valid").read_text().startswith("valid:{'exs': 24,")
    if agent == "Overlap":  # its dictionary class is the default
        words = Path(tmp_path, "m/Overlap.dict").read_text().splitlines()[4:]
        assert "the\t48" in words
        assert words == [word.lower() for word in words]
    if agent == "Bag":  # its options are a pickle
        report = run("-m", "parlai.scripts.eval_model", *words[:6], "-t", "talk_teachers")
        assert "{'exs': 24, 'total': 24, 'accuracy': 1.0," in report
        Path(tmp_path, "m/Bag.opt").unlink()  # agents may save a model file alone
        words[6:] = ["-t", "talk_teachers", "--hiddensize", 8, "--dict-file", "m/Bag.dict"]
        assert "'accuracy': 1.0," in run("-m", "parlai.scripts.eval_model", *words)


@pytest.mark.parametrize(
    ("task", "train", "valid"),
    [
        ("talk_teachers:ColorsTeacher", 48, 24),
        ("talk_teachers:SumsTeacher:4", 16, 16),
        ("talk_teachers:ReadingTeacher", 48, 24),
        ("talk_teachers:LinesTeacher", 24, 12),
        ("talk_teachers:AllTeacher", 81, 45),
        ("talk_teachers:ReadingTeacher,talk_teachers:LinesTeacher", 72, 36),
    ],
)
def test_teachers_show_each_example_once(task, train, valid, run):
    out = run(
        "loop.py",
        "-t",
        task,
        "-m",
        "repeat_label",
        "-dp",
        "data",
        "-bs",
        3,
        "-bsrt",
        "no",
        "-dt",
        "train:evalmode",
    )
    assert f"TRAIN {train}\n" in out.replace("loading: valid\n", "").replace("loading: train\n", "")
    assert final(out)[1:] == [str(valid), "1.0"]


@pytest.mark.parametrize("mode", ["fork", "spawn"])
def test_workers_count_in_a_shared_table(mode, run):
    words = ["-m", "talk_agents:TallyAgent", "-t", "talk_teachers:ReadingTeacher"]
    out = run("loop.py", *words, "-dp", "data", "-nt", 2, "-bs", 2, "--hogwild-mode", mode)
    assert "TRAIN 120\nTABLE 120 120\n" in out


@pytest.mark.parametrize("task", [("fromfile:{}",), ("fromfile", "--fromfile_datapath", "{}")])
@pytest.mark.parametrize("datatype", ["train:ordered:stream", "train:stream", "valid"])
def test_files_are_tasks(task, datatype, run, tmp_path):
    path = tmp_path / "talk.txt"
    path.write_text("text:a b\tlabels:b\ntext:c\tlabels:c\tepisode_done:True\n")
    words = [word.format(path) for word in task]
    out = run("loop.py", "-m", "talk_agents:TallyAgent", "-t", *words, "-dt", datatype, "--parleys", 2)
    assert out.startswith("TRAIN 2\nTABLE 2 2\n")
    assert final(out)[-2:] == ["2", "1.0"]


def test_a_world_of_its_own(run):
    assert final(run("own_world.py", "--number", 37)) == ["6", "True"]


def test_scripts_are_modules(run, tmp_path):
    out = run(
        "-m", "parlai.scripts.display_data", "-t", "talk_teachers", "-dp", "data", "-ne", 99, "-dt", "valid"
    )
    assert out.count("~~") == 24
    assert "EPOCH DONE\n[ loaded 12 episodes with a total of 24 examples ]" in out
    assert "[talk_teachers]:\n The house is red.\nWhat color has the house?\n [eval_labels: red]" in out
    words = ["-t", "talk_teachers:LinesTeacher", "-dp", "data", "--dict-maxexs", 3]
    run("-m", "parlai.scripts.build_dict", *words, "--dict_file", "d/words")
    words = Path(tmp_path, "d/words").read_text().splitlines()[4:]
    assert words == ["!\t3", "boat\t3", "car\t3", "house\t3", "say\t3"]


def test_folders_of_agents_and_tasks(run, tmp_path):
    for place, text in {
        "tasks/mine/agents.py": "from parlai.core.teachers import DialogTeacher\n"
        "class SmallTeacher(DialogTeacher):\n"
        "    def setup_data(self, path):\n        yield ('a', ['a']), True\n        yield ('b', ['b']), False\n"
        "class DefaultTeacher(SmallTeacher):\n    pass\n",
        "agents/echo_all/echo_all.py": "from parlai.core.agents import Agent\n"
        "class EchoAllAgent(Agent):\n"
        "    def act(self):\n        return {'id': 'echo', 'text': self.observation.get('text', '')}\n",
        "my_agents/loud.py": "from parlai.agents.echo_all.echo_all import EchoAllAgent as Loud\n",
        "mturk/__init__.py": "",
    }.items():
        (tmp_path / "parlai" / place).parent.mkdir(parents=True)
        (tmp_path / "parlai" / place).write_text(text)
    assert final(run("loop.py", "-m", "echo_all", "-t", "mine")) == ["mine", "2", "1.0"]
    spelled = ["parlai.agents.echo_all.echo_all:EchoAllAgent", "-t", "mine:small,parlai.tasks.mine.agents"]
    assert final(run("loop.py", "-m", *spelled))[1:] == ["4", "1.0"]
    assert final(run("loop.py", "-m", "parlai.my_agents.loud:Loud", "-t", "mine")) == ["mine", "2", "1.0"]
    (tmp_path / "program.py").write_text(
        "try: import parlai.mturk\nexcept ImportError as error: print(error)\n"
    )
    assert "there is no chat service" in run("program.py")


def test_missing_names_say_what_takes_their_place(run, tmp_path):
    (tmp_path / "program.py").write_text(
        "import parlai, parlai.core.agents\nprint(parlai.__version__, parlai.core.agents.Agent.__name__)\n"
        "from parlai.core.worlds import *\nprint(World.__name__)\n"
        "for line in ('from parlai.core.torch_agent import TorchAgent', 'import parlai.mturk',\n"
        "             'from parlai.core.utils import OffensiveLanguageDetector', 'parlai.core.agents.nothing'):\n"
        "    try: exec(line)\n    except (ImportError, AttributeError) as error: print(error)\n"
    )
    lines = run("program.py").splitlines()
    assert lines[:2] == ["0.1.0 Agent", "World"]
    assert "torch.nn.Module into an agent of your own" in lines[2]
    assert "there is no chat service" in lines[3]
    assert "'OffensiveLanguageDetector' from 'parlai.core.utils': timers" in lines[4]
    assert lines[5].startswith("parlai.core.agents.nothing is missing: ")
