"""Data sets of MXNet's examples; existing files are used without a network."""

from __future__ import annotations

import bz2
import gzip
import os
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._files import write_atomically
from ..base import ArgumentError, FileError, FileFormatError
from ..io import NDArrayIter

_HOST = "http://data.mxnet.io/"
_TIMEOUT_S = 30
_UBYTE = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as reply:
        content: bytes = reply.read()
    return content


def download(
    url: str, fname: str | None = None, dirname: str | None = None, overwrite: bool = False, retries: int = 5
) -> str:
    """Download a file unless it exists.

    Args:
        url: http or https address.
        fname: name to save under; the last part of `url` by default.
        dirname: folder to save in; the current one by default.
        overwrite: True to download even if the file exists.
        retries: number of retries.

    Returns:
        Path of the file.

    Raises:
        FileError: the download failed, for example without a network; the message contains the path of the file.
        ArgumentError: `url` is neither http nor https.
    """
    if not url.startswith(("http://", "https://")):
        raise ArgumentError(f"url is {url!r}, expected one that starts with http:// or https://")
    path = os.path.join(dirname or "", fname or url.split("/")[-1])
    if os.path.exists(path) and not overwrite:
        return path
    failure: Exception | None = None
    for _ in range(retries + 1):
        try:
            content = _fetch(url)
        except (urllib.error.URLError, OSError) as error:
            failure = error
            continue
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        write_atomically(path, content)
        return path
    raise FileError(
        f"cannot download {url} ({failure}); without a network, put the file at {path}"
    ) from failure


def download_model(
    model_name: str, dst_dir: str = "./", meta_info: Mapping[str, Mapping[str, str]] | None = None
) -> tuple[str | None, int]:
    """Download the two files of a checkpoint.

    Args:
        model_name: key in `meta_info`.
        meta_info: addresses as ``{name: {"symbol": url, "params": url}}``. There is no default, since the
            server of MXNet's list no longer exists.

    Returns:
        Prefix and epoch (0) for `load_checkpoint`; (None, 0) for a name without addresses.
    """
    addresses = (meta_info or {}).get(model_name)
    if addresses is None:
        return None, 0
    prefix = os.path.join(dst_dir, model_name)
    download(addresses["symbol"], f"{prefix}-symbol.json")
    download(addresses["params"], f"{prefix}-0000.params")
    return prefix, 0


def _read_idx(path: str) -> Any:
    """Return the array in an IDX file of bytes, with or without gzip compression."""
    opener: Any = gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
        content: bytes = file.read()
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise FileFormatError(f"{path}: offset 0: expected the magic number of an IDX file of bytes")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], dtype=">u4").astype(np.int64)
    if len(content) - start != int(np.prod(shape)):
        raise FileFormatError(
            f"{path}: offset {start}: expected {int(np.prod(shape))} bytes, found {len(content) - start}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def get_mnist() -> dict[str, Any]:
    """Return MNIST from its four .gz files, which are downloaded to the current folder if missing.

    Returns:
        train_data (60000, 1, 28, 28) and test_data (10000, 1, 28, 28), float32 in 0 to 1; train_label and
        test_label, int8.

    Raises:
        FileError: a file is missing and cannot be downloaded.
    """
    arrays = {}
    for key, stem in (("train", "train"), ("test", "t10k")):
        labels = _read_idx(download(f"{_HOST}data/mnist/{stem}-labels-idx1-ubyte.gz"))
        images = _read_idx(download(f"{_HOST}data/mnist/{stem}-images-idx3-ubyte.gz"))
        arrays[f"{key}_data"] = images[:, None].astype(np.float32) / 255
        arrays[f"{key}_label"] = labels.astype(np.int8)
    return arrays


def get_mnist_pkl() -> None:
    """Download ``data/mnist.pkl.gz`` unless it exists."""
    download("http://deeplearning.net/data/mnist/mnist.pkl.gz", dirname="data")


def _unpacked(names: tuple[str, ...], url: str) -> None:
    if all(os.path.exists(os.path.join("data", name)) for name in names):
        return
    with zipfile.ZipFile(download(url, dirname="data")) as packed:
        packed.extractall("data")


def get_mnist_ubyte() -> None:
    """Download and unpack the four files of MNIST to the folder ``data`` unless they exist."""
    _unpacked(_UBYTE, f"{_HOST}mxnet/data/mnist.zip")


def get_cifar10() -> None:
    """Download and unpack CIFAR-10 to the folder ``data/cifar`` unless it exists."""
    names = ("train.rec", "test.rec", "train.lst", "test.lst")
    _unpacked(tuple(f"cifar/{name}" for name in names), f"{_HOST}mxnet/data/cifar10.zip")


def _iterator(stem: str, batch_size: int, flat: bool, shuffle: bool, part: slice) -> NDArrayIter:
    images = _read_idx(f"data/{stem}-images-idx3-ubyte")[part].astype(np.float32) / 256
    labels = _read_idx(f"data/{stem}-labels-idx1-ubyte")[part].astype(np.float32)
    data = images.reshape(len(images), -1) if flat else images[:, None]
    return NDArrayIter(data, labels, batch_size=batch_size, shuffle=shuffle, last_batch_handle="discard")


def get_mnist_iterator(
    batch_size: int, input_shape: tuple[int, ...], num_parts: int = 1, part_index: int = 0
) -> tuple[NDArrayIter, NDArrayIter]:
    """Return iterators over MNIST for training (shuffled) and validation, downloading it if necessary.

    Args:
        input_shape: (784,) for rows, (1, 28, 28) for images.
        num_parts: number of parts of the data.
        part_index: number of the part to read, from 0.
    """
    get_mnist_ubyte()
    flat = len(input_shape) != 3

    def part(count: int) -> slice:
        return slice(count * part_index // num_parts, count * (part_index + 1) // num_parts)

    counts = [len(_read_idx(f"data/{name}")) for name in (_UBYTE[1], _UBYTE[3])]
    train = _iterator("train", batch_size, flat, True, part(counts[0]))
    return train, _iterator("t10k", batch_size, flat, False, part(counts[1]))


def get_zip_data(data_dir: str, url: str, data_origin_name: str) -> None:
    """Download a zip file to `data_dir` under the name `data_origin_name` and unpack it, unless it exists.

    Args:
        data_dir: a folder; created if it is missing.
        url: address of the compressed file.
    """
    path = os.path.join(data_dir, data_origin_name)
    if os.path.exists(path):
        return
    with zipfile.ZipFile(download(url, fname=data_origin_name, dirname=data_dir)) as packed:
        packed.extractall(data_dir)


def get_bz2_data(data_dir: str, data_name: str, url: str, data_origin_name: str) -> None:
    """Download a bz2 file, unpack it to `data_name` in `data_dir` and remove it, unless `data_name` exists.

    Args:
        data_dir: a folder; created if it is missing.
        data_name: name of the unpacked file.
        url: address of the compressed file.
    """
    target = os.path.join(data_dir, data_name)
    if os.path.exists(target):
        return
    packed = download(url, fname=data_origin_name, dirname=data_dir)
    with bz2.open(packed, "rb") as file:
        write_atomically(target, file.read())
    os.remove(packed)
