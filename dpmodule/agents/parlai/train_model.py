"""`parlai.scripts.train_model`: train an agent, with validation by time or epochs.

Source: the training loop of ParlAI, 2018. ``dpmodule train-agent`` is the loop of this package, which resumes exactly.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from ..agent import create_agent, options_file
from ..create import create_task
from ..parser import ParlaiParser
from ..worlds import World
from .build_data import make_dir
from .build_dict import build_dict, options_of
from .build_dict import setup_args as dictionary_args
from .eval_model import with_count
from .logs import TensorboardLogger
from .utils import Timer

__all__ = ["TrainLoop", "load_eval_world", "main", "run_eval", "save_best_valid", "setup_args"]

Report = dict[str, Any]

_FLAGS: Mapping[str, tuple[Any, Any, str]] = {
    "-et --evaltask": (str, None, "tasks to validate on (default: those of --task)"),
    "-e -eps --num-epochs": (float, -1.0, "number of epochs to train; -1: no limit (default)"),
    "-d --display-examples": ("bool", False, "print examples with the lines of the log"),
    "-ttim --max-train-time": (float, -1, "seconds of training; -1: no limit (default)"),
    "-vtim --validation-every-n-secs": (float, -1, "seconds between two validations; -1: none (default)"),
    "-veps --validation-every-n-epochs": (float, -1, "epochs between two validations; -1: none (default)"),
    "-stim --save-every-n-secs": (float, -1, "seconds between two checkpoints; -1: none (default)"),
    "-sval --save-after-valid": ("bool", False, "write a checkpoint after each validation"),
    "-vme --validation-max-exs": (int, -1, "number of examples of a validation; -1: all (default)"),
    "-vp --validation-patience": (int, 10, "validations without a better one before the end (default: 10)"),
    "-vmt --validation-metric": (str, "accuracy", "metric that decides the best agent, or TASK/METRIC"),
    "-vmm --validation-metric-mode": (str, None, "min or max (default: min for loss, ppl and mean_rank)"),
    "-vcut --validation-cutoff": (float, 1.0, "value of the metric that ends the training (default: 1.0)"),
    "-dbf --dict-build-first": ("bool", True, "build the dictionary first (default: yes)"),
    "-lfc --load-from-checkpoint": ("bool", False, "start from MODEL_FILE.checkpoint if it exists"),
    "-vshare --validation-share-agent": ("bool", False, "no effect: validation uses the agent itself"),
    "-micro --aggregate-micro": ("bool", False, "no effect: reports have both kinds of means"),
}

_SMALLER_IS_BETTER = ("loss", "ppl", "mean_rank")


def setup_args(parser: ParlaiParser | None = None) -> ParlaiParser:
    """Return a parser with the flags of `TrainLoop`.

    Args:
        parser: parser to add them to; None: a new one.
    """
    parser = dictionary_args(parser)
    group = parser.add_argument_group("training loop")
    for names, (kind, default, about) in _FLAGS.items():
        group.add_argument(*names.split(), type=kind, default=default, help=about)
    TensorboardLogger.add_cmdline_args(parser)
    return parser


def load_eval_world(agent: Any, opt: Mapping[str, Any], datatype: str) -> World:
    """Return a world that evaluates an agent, in one process.

    Args:
        agent: the agent.
        opt: options of the training; ``evaltask`` replaces ``task``.
        datatype: "valid" or "test".
    """
    stream = ":stream" if "stream" in str(opt.get("datatype")).split(":") else ""
    task = opt.get("evaltask") or opt["task"]
    return create_task({**opt, "task": task, "datatype": datatype + stream, "numthreads": 1}, agent)


def run_eval(
    agent: Any,
    opt: Mapping[str, Any],
    datatype: str,
    max_exs: float = -1,
    write_log: bool = False,
    valid_world: World | None = None,
) -> Any:
    """Evaluate an agent, and return its metrics; the world is reset afterwards.

    Args:
        agent: result of `load_eval_world`; or an agent, and the result is the metrics and the world, as until October
            2018.
        opt: options of the training.
        datatype: "valid" or "test".
        max_exs: number of examples after which to stop; -1: all.
        write_log: whether to add the metrics to the file ``MODEL_FILE.DATATYPE``.
        valid_world: world of the agent; None: a new one.
    """
    print(f"[ running eval: {datatype} ]")
    is_world = isinstance(agent, World)
    world = agent if is_world else valid_world or load_eval_world(agent, opt, datatype)
    world.reset()
    count = 0
    while not world.epoch_done() and not 0 < max_exs <= count:
        world.parley()
        if not count and opt.get("display_examples"):
            print(f"{world.display()}\n~~")
        count += int(opt.get("batchsize") or 1)
    report = with_count(world.report())
    world.reset()
    line = f"{datatype}:{report}"
    print(line)
    if write_log and opt.get("model_file"):
        with open(f"{opt['model_file']}.{datatype}", "a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    return report if is_world else (report, world)


def save_best_valid(model_file: str, best_valid: float) -> None:
    """Write the best value of the validation metric.

    Args:
        model_file: path of the agent.
        best_valid: the value.
    """
    with open(f"{model_file}.best_valid", "w", encoding="utf-8") as file:
        file.write(str(best_valid))


def _limit(opt: Mapping[str, Any], name: str) -> float:
    """Return an option, infinity if it is not positive."""
    value = opt.get(name)
    return float(value) if value is not None and value > 0 else math.inf


class TrainLoop:
    """Trains an agent until a limit of epochs or time, the patience, or the cutoff is reached.

    Args:
        opt: the options that `setup_args` reads, or its parser.

    Attributes:
        agent: the agent.
        world: the world that it is trained in.
        best_valid: best value of the validation metric, None before the first validation.
        impatience: number of validations since the best one.
    """

    def __init__(self, opt: Mapping[str, Any] | ParlaiParser) -> None:
        self.opt = opt = options_of(opt)
        path = opt.get("model_file")
        if path:
            make_dir(os.path.dirname(path) or os.curdir)
        if path and opt.get("load_from_checkpoint") and os.path.isfile(options_file(f"{path}.checkpoint")):
            opt["init_model"] = f"{path}.checkpoint"
        if opt.get("dict_build_first", True):
            if opt.get("dict_file") is None and path:
                opt["dict_file"] = f"{path}.dict"
            if opt.get("dict_file"):
                print("[ building dictionary first... ]")
                build_dict(opt, skip_if_built=True)
        self.agent = create_agent(opt)
        self.world = create_task(opt, self.agent)
        self.train_time, self.validate_time = Timer(), Timer()
        self.log_time, self.save_time = Timer(), Timer()
        print("[ training... ]")
        self.parleys = 0
        self.max_num_epochs = _limit(opt, "num_epochs")
        self.max_train_time = _limit(opt, "max_train_time")
        self.log_every_n_secs = _limit(opt, "log_every_n_secs")
        self.val_every_n_secs = _limit(opt, "validation_every_n_secs")
        self.save_every_n_secs = _limit(opt, "save_every_n_secs")
        self.val_every_n_epochs = _limit(opt, "validation_every_n_epochs")
        self.last_valid_epoch = 0.0
        smaller = str(opt["validation_metric"]).rpartition("/")[2] in _SMALLER_IS_BETTER
        mode = opt.get("validation_metric_mode") or ("min" if smaller else "max")
        self.valid_optim = 1 if mode == "max" else -1
        self.best_valid: float | None = None
        if path and os.path.isfile(f"{path}.best_valid"):
            with open(f"{path}.best_valid", encoding="utf-8") as file:
                self.best_valid = float(file.readline())
        self.impatience = 0
        self.saved = False
        self.valid_world: World | None = None
        self.writer = TensorboardLogger(opt) if opt.get("tensorboard_log") else None

    def save_model(self, suffix: str | None = None) -> None:
        """Save the agent as ``model_file``, if that is set.

        Args:
            suffix: end of the path, such as ".checkpoint".
        """
        if self.opt.get("model_file"):
            print(f"[ saving model: {self.opt['model_file']}{suffix or ''} ]")
            self.agent.save(f"{self.opt['model_file']}{suffix or ''}")

    def validate(self) -> bool:
        """Validate, save the agent if it is the best so far, and return True if the training should end."""
        opt = self.opt
        self.world.report()  # waits for the workers
        if self.valid_world is None:
            self.valid_world = load_eval_world(self.agent, opt, "valid")
        report = run_eval(self.valid_world, opt, "valid", opt.get("validation_max_exs", -1))
        if self.writer is not None:
            self.writer.add_metrics("valid", self.world.get_total_exs(), report)
        if opt.get("save_after_valid"):
            self.save_model(".checkpoint")
        if hasattr(self.agent, "receive_metrics"):
            self.agent.receive_metrics(report)
        self.validate_time.reset()
        subtask, _, name = str(opt["validation_metric"]).rpartition("/")
        value = float((report["tasks"][subtask] if subtask else report)[name])
        if self.best_valid is None or self.valid_optim * value > self.valid_optim * self.best_valid:
            before = "" if self.best_valid is None else f" (previous best was {self.best_valid})"
            print(f"[ new best {name}: {value}{before} ]")
            self.best_valid, self.impatience = value, 0
            self.save_model()
            if opt.get("model_file"):
                save_best_valid(opt["model_file"], value)
                self.saved = True
            if name == "accuracy" and value >= opt.get("validation_cutoff", 1.0):
                print("[ task solved! stopping. ]")
                return True
            return False
        self.impatience += 1
        print(f"[ did not beat best {name}: {round(self.best_valid, 4)} impatience: {self.impatience} ]")
        if 0 < opt.get("validation_patience", -1) <= self.impatience:
            print("[ ran out of patience! stopping training. ]")
            return True
        return False

    def log(self) -> None:
        """Print the metrics since the last call, and reset them."""
        if self.opt.get("display_examples"):
            print(f"{self.world.display()}\n~~")
        report = with_count(self.world.report())
        self.world.reset_metrics()
        if self.writer is not None:
            self.writer.add_metrics("train", self.world.get_total_exs(), report)
        done = f"time:{math.floor(self.train_time.time())}s total_exs:{self.world.get_total_exs()}"
        print(f"[ {done} epochs:{self.world.get_total_epochs():.2f} ] {report}")
        self.log_time.reset()

    def train(self) -> tuple[Report, Report]:
        """Train, and return the metrics of the best agent on "valid" and on "test"."""
        with self.world as world:
            while not self._is_over():
                world.parley()
                self.parleys += 1
        self._end()
        return self._final("valid"), self._final("test")

    def _is_over(self) -> bool:
        """Do what is due between two parleys, and return True if the training should end."""
        world, path = self.world, self.opt.get("model_file")
        if not self.parleys:
            return False
        if world.get_total_epochs() >= self.max_num_epochs:
            self.log()
            print(f"[ num_epochs completed:{self.max_num_epochs} time elapsed:{self.train_time.time()}s ]")
            return True
        if self.train_time.time() > self.max_train_time:
            print(f"[ max_train_time elapsed:{self.train_time.time()}s ]")
            return True
        if self.log_time.time() > self.log_every_n_secs:
            self.log()
        is_due = world.get_total_epochs() - self.last_valid_epoch >= self.val_every_n_epochs
        if self.validate_time.time() > self.val_every_n_secs or is_due:
            if is_due:
                self.last_valid_epoch = world.get_total_epochs()
            if self.validate():
                return True
        if path and self.save_time.time() > self.save_every_n_secs:
            self.save_model(".checkpoint")
            self.save_time.reset()
        return False

    def _end(self) -> None:
        """Save the agent, or load the best one."""
        if not self.saved:
            self.save_model()
        elif any(map(os.path.isfile, (path := self.opt["model_file"], options_file(path)))):
            self.agent = create_agent(self.opt)
        if self.valid_world is not None:
            self.valid_world.shutdown()

    def _final(self, datatype: str) -> Report:
        world = load_eval_world(self.agent, self.opt, datatype)
        report: Report = run_eval(world, self.opt, datatype, write_log=True)
        world.shutdown()
        return report


def main() -> None:
    """Train the agent that the command line describes."""
    TrainLoop(setup_args().parse_args()).train()
