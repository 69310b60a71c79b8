"""What child processes do with the handles that tests send them."""

import torch


def answer(connection):
    """Receive handles; say of each what it holds, then once more when told that it was written to."""
    torch.set_num_threads(1)
    for handle in iter(connection.recv, None):
        shared = isinstance(handle.source, torch.Tensor) and handle.source.is_shared()
        connection.send((bytes(handle[:8]), len(handle), shared))
        connection.recv()
        connection.send(bytes(handle[:8]))
    connection.send("done")


def give(connection, size):
    """Send a handle over bytes, one over a shared tensor, and wait until they are no longer needed."""
    from dpmodule.streams import StringHandle

    torch.set_num_threads(1)
    connection.send(StringHandle(b"b" * size))
    connection.send(StringHandle(torch.full((size,), 7, dtype=torch.uint8).share_memory_())[size // 2 :])
    connection.recv()


def report(connection, handle):
    """Say what a handle holds that came as an argument."""
    connection.send((bytes(handle[:4]), len(handle)))
