"""What spawned children of the pipe's tests run: a child finds it by name, which it would not find a test file by."""

import time

import torch


def value_of(i):
    return {"i": torch.tensor(i), "x": [torch.full((1 + i % 50,), float(i)), None]}


def spawned_writer(writer):
    torch.set_num_threads(1)
    with writer:
        for i in range(50):
            writer.send(value_of(i))


def spawned_reader(reader, answer):
    torch.set_num_threads(1)
    with answer:
        answer.send([torch.tensor(sum(int(value["i"]) for value in reader))])
    reader.close()


def spawned_sleeper(reader):
    time.sleep(60)


def spawned_with_python_core(writer):
    writer.send(torch.ones(1))


def add_on_gpu(reader, answering):
    with answering:
        for value in reader:
            answering.send((value["x"].sum().cpu() + value["host"]).view(1))
            del value
    reader.close()
