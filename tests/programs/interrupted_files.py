"""Train on files until Ctrl-C, and once more."""

import os
import signal
import sys
import threading

import dpmodule as mx
from helpers.hogwild import BAGS, bag_net, described

files = sys.argv[1:]
with mx.AsyncExecutor() as run:
    net, feed = bag_net(), described(**BAGS)
    run.run_from_files(net, feed, files[:1], 1, mode="native")
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        while True:
            run.run_from_files(net, described(1, **BAGS), files, 2, mode="native")
    except KeyboardInterrupt:
        print("interrupted")
    print(run.run_from_files(net, feed, files[:1], 1, mode="native").examples)
