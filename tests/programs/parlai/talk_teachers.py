"""Five teachers, written as those of ParlAI's users in 2018, one for each class that they derive from."""

import copy
import os

import parlai.core.build_data as build_data
from parlai.core.agents import MultiTaskTeacher
from parlai.core.dialog_teacher import DialogTeacher
from parlai.core.fbdialog_teacher import FbDialogTeacher
from parlai.core.teachers import FixedDialogTeacher, ParlAIDialogTeacher

COLORS = ["red", "green", "blue"]
THINGS = ["house", "car", "boat", "tree"]
SIZES = {"train": 24, "valid": 12, "test": 6}


def build(opt):
    dpath = os.path.join(opt["datapath"], "Colors")
    version = "v1"
    if not build_data.built(dpath, version_string=version):
        print("[building data: " + dpath + "]")
        if build_data.built(dpath):
            build_data.remove_dir(dpath)
        build_data.make_dir(dpath)
        for split, size in SIZES.items():
            with open(os.path.join(dpath, split + ".txt"), "w") as write:
                for number in range(size):
                    thing, color = THINGS[number % 4], COLORS[number % 3]
                    write.write("1 The %s is %s.\n" % (thing, color))
                    write.write("2 What color has the %s?\t%s\t\t%s\n" % (thing, color, "|".join(COLORS)))
                    write.write("3 And what is %s?\t%s\t\t%s\n" % (color, thing, "|".join(THINGS)))
        build_data.mark_done(dpath, version_string=version)


class ColorsTeacher(FbDialogTeacher):
    """Numbered lines, which `build` has written."""

    def __init__(self, opt, shared=None):
        opt = copy.deepcopy(opt)
        build(opt)
        dt = opt["datatype"].split(":")[0]
        opt["datafile"] = os.path.join(opt["datapath"], "Colors", dt + ".txt")
        super().__init__(opt, shared)


class DefaultTeacher(ColorsTeacher):
    pass


class SumsTeacher(DialogTeacher):
    """Generated examples, with candidates for all of them; the task has arguments."""

    def __init__(self, opt, shared=None):
        self.datatype = opt["datatype"]
        parts = opt["task"].split(":")
        self.most = int(parts[2]) if len(parts) > 2 else 5
        opt["datafile"] = self.datatype.split(":")[0]
        self.id = "sums"
        super().__init__(opt, shared)

    def label_candidates(self):
        return [str(number) for number in range(2 * self.most)]

    def setup_data(self, path):
        print("loading: " + path)
        for a in range(self.most):
            for b in range(self.most):
                yield ("%d plus %d" % (a, b), (str(a + b) for _ in range(1))), b == 0


class ReadingTeacher(FixedDialogTeacher):
    """Holds its own data, and shares it."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "reading"
        if shared:
            self.examples = shared["examples"]
        else:
            self._setup_data(SIZES[self.datatype.split(":")[0]])
        self.reset()

    def _setup_data(self, size):
        self.examples = [(THINGS[n % 4], COLORS[n % 3], n) for n in range(size)]

    def share(self):
        shared = super().share()
        shared["examples"] = self.examples
        return shared

    def num_examples(self):
        return 2 * len(self.examples)

    def num_episodes(self):
        return len(self.examples)

    def get(self, episode_idx, entry_idx=0):
        thing, color, number = self.examples[episode_idx]
        action = {"id": "reading", "episode_done": entry_idx == 1, "answer_starts": [number]}
        if entry_idx == 0:
            action.update(text="the %s is %s\nwhich color" % (thing, color), labels=[color])
        else:
            action.update(text="which thing", labels=[thing])
        return action


class LinesTeacher(ParlAIDialogTeacher):
    """Lines of named fields."""

    def __init__(self, opt, shared=None):
        opt = copy.deepcopy(opt)
        dt = opt["datatype"].split(":")[0]
        path = os.path.join(opt["datapath"], "lines_" + dt + ".txt")
        if not os.path.isfile(path):
            build_data.make_dir(opt["datapath"])
            with open(path, "w") as write:
                for n in range(SIZES[dt]):
                    end = "\tepisode_done:True" if n % 2 else ""
                    write.write(
                        "text:say %s\tlabels:%s|%s!%s\n" % (THINGS[n % 4], THINGS[n % 4], THINGS[n % 4], end)
                    )
        opt["parlaidialogteacher_datafile"] = path
        super().__init__(opt, shared)


class AllTeacher(MultiTaskTeacher):
    """Three of the tasks in turns."""

    def __init__(self, opt, shared=None):
        opt = copy.deepcopy(opt)
        opt["task"] = "talk_teachers:ReadingTeacher,talk_teachers:LinesTeacher,talk_teachers:SumsTeacher:3"
        super().__init__(opt, shared)
