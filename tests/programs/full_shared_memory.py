"""Ask for more shared memory than there is, in four ways, and print the errors."""

from multiprocessing.reduction import ForkingPickler

import torch

from dpmodule._devices.shared_memory import Segment
from dpmodule.streams import StringHandle, Supervisor


def child(channel, handle):
    return len(handle)


if __name__ == "__main__":
    handle, tensor = StringHandle(bytes(3 << 20)), torch.zeros(3 << 20, dtype=torch.uint8)
    supervisor = Supervisor()
    for call in (
        lambda: ForkingPickler.dumps(handle),
        lambda: supervisor.start(child, handle),
        lambda: supervisor.start(child, tensor),
        lambda: Segment([tensor]),
    ):
        try:
            call()
        except MemoryError as error:
            print(error)
    assert len(ForkingPickler.dumps(handle[: 1 << 18])) < 1000  # for which there is room
    supervisor.close()
