"""Have workers and programs of an `AsyncExecutor` at work: see `begin`.

Each program that reads a file leaves one of its number in the folder ``AT_WORK``.
"""

import json
import os
import threading
import time
from functools import partial
from pathlib import Path

import dpmodule as mx
from helpers.hogwild import dense_module, described
from helpers.processes import descendants, until


def training(method, mode, workers):
    """An `AsyncExecutor` with workers for each of which a program reads a file."""
    folder = Path(os.environ["AT_WORK"])
    files = [str(folder / name) for name in ("a", "b")]
    for name in files:
        Path(name).touch()
    text = described(x="float dense", label="uint64 dense").desc()
    # more than a pipe holds, so that it goes on only when it is being read
    command = f"sh -c 'head -c 100000 /dev/zero; : > {folder}/$$; exec sleep 600'"
    feed = mx.DataFeedDesc(text.replace('"cat"', f'"{command}"'), allow_pipe_command=True)
    module = dense_module()
    module.bind([("x", (8, 4))], [("label", (8,))])
    module.init_params()
    run = mx.AsyncExecutor(start_method=method)
    call, options = run.run_from_files, {"mode": mode}
    threading.Thread(target=call, args=(module, feed, files, workers), kwargs=options, daemon=True).start()
    return run


def begin(method):
    """Print a line of JSON with the processes of each mode, and wait to be killed."""
    names, kept, found, expected = partial(os.listdir, os.environ["AT_WORK"]), [], {}, 0
    for mode, workers in (("process", 2), ("serial", 1)):
        before, expected = descendants(), expected + workers
        kept.append(training(method, mode, workers))
        until(lambda least=expected: sum(name.isdigit() for name in names()) >= least)
        found[mode] = sorted(descendants() - before)
    print(json.dumps(found, separators=(",", ":")), flush=True)
    time.sleep(600)
