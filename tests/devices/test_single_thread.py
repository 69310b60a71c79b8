"""Processes that fork after they have loaded networks: OpenMP's threads, which a child lacks, must not run before."""

import threading

import torch

from dpmodule._devices.single_thread import single_thread
from helpers.programs import TESTS, run_file


def test_networks_are_loaded_before_a_fork_without_threads_that_a_child_lacks(tmp_path):
    program = TESTS / "programs" / "load_before_fork.py"
    done = run_file(program, cwd=tmp_path, fresh=True, OMP_NUM_THREADS="2")
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_the_number_of_threads_comes_back():
    numbers = []

    def work():
        torch.set_num_threads(3)
        try:
            with single_thread():
                numbers.append(torch.get_num_threads())
                with single_thread():
                    raise KeyError
        except KeyError:
            numbers.append(torch.get_num_threads())

    before = torch.get_num_threads()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.set_num_threads(before)
    assert numbers == [1, 3]
