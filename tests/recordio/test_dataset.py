"""Record files as datasets of torch."""

import pickle

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import dpmodule as mx
from dpmodule.recordio.framing import MAGIC


@pytest.fixture
def path(tmp_path):
    """A record file with an index whose keys are 7, 6, ... ."""
    with mx.recordio.MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w") as record:
        for i in range(8):
            record.write_idx(7 - i, b"%d" % i + MAGIC * (i % 3))  # some are cut in parts
    return tmp_path / "a.rec"


def number(record):
    return int(record[:1])


@pytest.mark.parametrize("how", ["index", "beside", "scan"])
def test_records_by_number(path, how):
    index = path.with_suffix(".idx")
    if how == "scan":
        index.unlink()
    dataset = mx.recordio.RecordDataset(path, index if how == "index" else None)
    assert isinstance(dataset, Dataset)
    assert len(dataset) == 8
    assert list(dataset) == [b"%d" % i + MAGIC * (i % 3) for i in range(8)]
    assert dataset[-1] == dataset[7]
    assert dataset.keys == (list(range(8)) if how == "scan" else list(range(8))[::-1])
    assert index.exists() == (how != "scan")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_reads_it(path, workers):
    dataset = mx.recordio.RecordDataset(path, transform=number)
    loader = DataLoader(dataset, 3, shuffle=True, num_workers=workers)
    found = torch.cat(list(loader)).tolist()
    assert sorted(found) == list(range(8))
    assert list(pickle.loads(pickle.dumps(dataset))) == list(range(8))
