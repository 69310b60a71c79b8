import pytest

from dpmodule import agents
from dpmodule.agents import ParlaiParser, RepeatLabelAgent, Teacher, create_agent, create_task
from dpmodule.base import ArgumentError


class Learner(RepeatLabelAgent):
    @staticmethod
    def add_cmdline_args(parser):
        parser.add_argument_group("learner").add_argument("-lr", "--learning-rate", type=float, default=0.1)


class Library(Teacher):
    @staticmethod
    def add_cmdline_args(parser):
        parser.add_argument("--shelf", type=int, default=3)


class DefaultTeacher(Library):
    """What the name of this module stands for as a task."""


LEARNER, LIBRARY = f"{__name__}:Learner", f"{__name__}:Library"


def parse(*words, **more):
    return ParlaiParser(True, True).parse_args(list(words), print_args=False, **more)


def test_short_and_long_flags_of_2018():
    for short, long, value, read in (
        ("-t", "--task", f"{LIBRARY},{LIBRARY}", f"{LIBRARY},{LIBRARY}"),
        *(("-dt", "--datatype", "valid:stream", "valid:stream"), ("-bs", "--batchsize", "32", 32)),
        *(("-nt", "--numthreads", "2", 2), ("-bsrt", "--batch-sort", "no", False)),
        *(("-clen", "--context-length", "-1", -1), ("-incl", "--include-labels", "0", False)),
        ("-eps", "--num-epochs", "2.5", 2.5),
    ):
        for words in ((short, value), (long, value), (f"{long}={value}",)):
            assert parse(*words)[long[2:].replace("-", "_")] == read


def test_agents_and_tasks_add_their_own_flags(capsys):
    opt = parse("-m", LEARNER, "-t", __name__, "-lr", "0.5", "--shelf", "7")
    assert (opt["learning_rate"], opt["shelf"]) == (0.5, 7)
    assert (opt["context_length"], opt["batchsize"], opt["include_labels"]) == (-1, 1, True), "defaults"
    parser = ParlaiParser(True, True)
    parser.set_defaults(task=LIBRARY, model=LEARNER, datatype="valid")
    opt = parser.parse_args(["--shelf", "7"], print_args=False)
    assert (opt["learning_rate"], opt["shelf"], opt["override"]) == (0.1, 7, {"shelf": 7})
    with pytest.raises(SystemExit):
        parser.parse_args(["-m", LEARNER, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--learning-rate" in shown
    assert "(default: valid)" in shown
    world = create_task({"task": __name__}, RepeatLabelAgent({}))
    assert type(world.get_agents()[0]) is DefaultTeacher, "a module alone means its default teacher"


def test_an_agent_saved_in_the_model_file_adds_its_flags(tmp_path):
    line = ["-mf", str(tmp_path / "m")]
    (tmp_path / "m.opt").write_text('{"model": "repeat_label", "mood": "good"}')
    agent = create_agent(parse(*line, "--dict-lower", "yes"))
    assert (type(agent), agent.opt["mood"], agent.opt["dict_lower"]) == (RepeatLabelAgent, "good", True)
    (tmp_path / "m.opt").write_text('{"model": "antigravity:fly"}')
    with pytest.raises(ArgumentError, match="modules that only a file names are not imported"):
        parse(*line)
    (tmp_path / "m.opt").write_text(f'{{"model": "{LEARNER}", "learning_rate": 0.3}}')
    for more, rate in (([], 0.3), (["-lr", "0.5"], 0.5)):  # the line counts more than what is saved
        assert create_agent(parse(*line, "-m", LEARNER, *more)).opt["learning_rate"] == rate


def test_options_are_shown(capsys, monkeypatch):
    parser = ParlaiParser()
    parser.parse_args(["-bs", "4"])
    assert "[ batchsize: 4 ]" in capsys.readouterr().out.splitlines()
    monkeypatch.setattr("sys.argv", ["program", "-bs", "3"])
    ParlaiParser().print_args()
    parser.parse_args(["-bs", "5"], print_args=False)
    parser.print_args()
    shown = capsys.readouterr().out
    assert shown.index("[ batchsize: 3 ]") < shown.index("[ batchsize: 5 ]")
    assert parser.opt["batchsize"] == 5


def test_folders_of_programs_of_parlai(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("PARLAI_HOME", "PARLAI_DATAPATH"):
        monkeypatch.delenv(name, raising=False)
    opt = parse()
    assert (opt["parlai_home"], opt["datapath"]) == (str(tmp_path), str(tmp_path / "data"))
    monkeypatch.setenv("PARLAI_HOME", "elsewhere")
    assert parse()["datapath"] == "elsewhere/data"
    monkeypatch.setenv("PARLAI_DATAPATH", "/data")
    assert (parse()["datapath"], parse("-dp", "mine")["datapath"]) == ("/data", "mine")
    bare = ParlaiParser(False)
    assert "datapath" not in bare.parse_args([], print_args=False)
    bare.add_parlai_data_path(bare.add_argument_group("data"))
    assert bare.parse_args([], print_args=False)["datapath"] == "/data"


def test_flags_are_added_by_hand_as_in_parlai():
    parser = ParlaiParser(False, description="mine")
    parser.add_parlai_args(["-bs", "3"])
    parser.add_model_args()
    parser.add_task_args(f"{LIBRARY},reverse")
    parser.add_model_subargs("seq2seq")
    parser.add_extra_args(["-m", LEARNER])
    parser.add_arg("--reader", type="class", default=None)
    line = ["--shelf", "2", "-hs", "7", "--learning-rate", "0.5", "--reader", "dpmodule.agents:Teacher"]
    opt = parser.parse_args(line, print_args=False)
    assert (opt["shelf"], opt["hiddensize"], opt["learning_rate"], opt["reader"]) == (2, 7, 0.5, Teacher)
    assert "mine" in parser.format_help()


def test_subclasses_add_flags_to_the_group_of_their_base():
    kinds = (agents.DictionaryAgent, agents.ModuleAgent, agents.Seq2seqAgent, agents.StarspaceAgent)
    for kind in (*kinds, agents.IrBaselineAgent, agents.FromFileTeacher):
        parser = ParlaiParser()
        kind.add_cmdline_args(parser).add_argument("--mood", type="bool", default=True)
        assert parser.parse_args(["--mood", "no"], print_args=False)["mood"] is False


def test_names_that_programs_of_parlai_import():
    assert agents.str2class(agents.class2str(Library)) is Library
    assert agents.class2str(Teacher) == "dpmodule.agents.teachers:Teacher"
    message = {"text": "hi"}
    assert agents.validate(message) is message
    make = agents.create_task_agent_from_taskname
    (one,) = make({"task": "reverse:size=3", "datatype": "valid"})
    assert (one.num_examples(), one.getID()) == (3, "reverse:size=3")
    (two,) = make({"task": "reverse, nocandidate", "datatype": "valid"})
    assert (type(two), len(two.tasks)) == (agents.MultiTaskTeacher, 2)
