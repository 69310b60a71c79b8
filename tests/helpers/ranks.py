"""Start a program as several processes that train together, as torchrun does, but from the server of processes."""

import contextlib
import socket

from helpers.programs import TESTS, Program


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def ranks(what, size, *arguments, kind="code", cwd=TESTS, **changes):
    """Yield the programs of `size` processes, each with its rank in the environment; ends those that still run."""
    common = {
        "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "OMP_NUM_THREADS": "1",
        "cwd": cwd, **changes,
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Program(kind, what, *arguments, **common, RANK=f"{i}", LOCAL_RANK=f"{i}"))
            for i in range(size)
        ]


def run_ranks(what, size, *arguments, seconds=60, **options):
    """Run a program as several processes; return their standard outputs once all have ended well."""
    with ranks(what, size, *arguments, **options) as programs:
        codes = [program.wait(seconds) for program in programs]
        outputs = [program.output() for program in programs]
    assert codes == [0] * size, "\n".join(f"--- rank {i}\n{out}{err}" for i, (out, err) in enumerate(outputs))
    return [out for out, _ in outputs]
