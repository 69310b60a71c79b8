"""Trains in a loop of its own, and validates with the same agent."""

import random

from parlai.core.agents import create_agent
from parlai.core.params import ParlaiParser
from parlai.core.utils import Timer, round_sigfigs
from parlai.core.worlds import create_task


def main():
    random.seed(42)
    parser = ParlaiParser(True, True)
    train = parser.add_argument_group("Training Loop Arguments")
    train.add_argument("-vtim", "--validation-every-n-secs", type=float, default=0.5)
    train.add_argument("--parleys", type=int, default=60)
    opt = parser.parse_args(print_args=False)
    agent = create_agent(opt)
    world = create_task(opt, agent)
    timer = Timer()
    with world:
        for _ in range(opt["parleys"]):
            world.parley()
        print("TRAIN", world.report()["total"])
    if hasattr(agent, "table"):
        print("TABLE", agent.table["examples"], int(agent.weights[0]))
    opt = dict(opt, datatype="valid")
    valid_world = create_task(opt, agent)
    while not valid_world.epoch_done():
        valid_world.parley()
    report = valid_world.report()
    valid_world.shutdown()
    assert timer.time() > 0
    print("FINAL", valid_world.getID(), report["total"], round_sigfigs(report["accuracy"], 3))


if __name__ == "__main__":
    main()
