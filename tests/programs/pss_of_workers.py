"""Print the memory, in MiB, of some workers that train one Starspace agent, and of their parent."""

import gc
import sys

import numpy as np

from dpmodule.agents import StarspaceAgent, create_agent_from_shared
from dpmodule.streams import Supervisor


def pss_mib():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def train(channel, shared):
    gc.freeze()  # a collection would write to all that is shared with the parent
    agent = create_agent_from_shared({**shared, "threadindex": channel.index})
    draw = np.random.RandomState(channel.index)
    for _ in range(100):
        words = draw.randint(1000, size=(32, 21))
        rows = [{"text": " ".join(f"w{w}" for w in row[:20]), "labels": [f"w{row[20]}"]} for row in words]
        agent.batch_act(rows)
    for _ in range(2):
        channel.send(pss_mib())
        channel.recv()


opt = {"dict_file": sys.argv[1], "embeddingsize": 256, "numthreads": 4, "batchsize": 32}
agent = StarspaceAgent(opt)
with Supervisor("workers", start_method="fork") as workers:
    children = [workers.start(train, agent.share()) for _ in range(int(sys.argv[2]))]
    for _ in range(2):
        sizes = [child.recv(60) for child in children] + [pss_mib()]  # the second time all have trained
        for child in children:
            child.send(None, 60)
    workers.join(60)
print(sum(sizes))
