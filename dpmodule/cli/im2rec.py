"""``dpmodule im2rec``: a folder of pictures becomes a record file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from ..base import ArgumentError
from ..recordio.folder import Picture, Recoding, find_pictures, split_pictures, write_pictures
from . import options

_SHOWN = 10
"""So many classes, and pictures that cannot be used, are printed by name."""


def add_commands(commands: Any) -> None:
    """Add ``im2rec`` to the subcommands of the command line."""
    parser = commands.add_parser(
        "im2rec",
        help="pack a folder of pictures, one folder in it for each class, into a record file",
        description="Write OUT.rec, the pictures of a folder with their classes, OUT.idx, where each of them begins, "
        "and OUT.lst, their numbers, classes and paths, as MXNet's im2rec.py does; mx.io.ImageRecordIter reads them. "
        "Each folder below FOLDER that has pictures is a class, numbered from 0 in alphabetical order. The files "
        "appear when everything is written. Pictures that cannot be read are left out and named; "
        "the exit status is 1 then.",
    )
    parser.set_defaults(run=_run)
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        type=options.filled,
        help="folder of folders (default: none, it must be given)",
    )
    parser.add_argument(
        "out",
        metavar="OUT",
        type=options.filled,
        help="path without ending (default: none, it must be given)",
    )
    parser.add_argument(
        "--resize",
        type=options.whole(1, 65500),
        metavar="PIXELS",
        help="length that the shorter edge gets (default: pictures keep their size)",
    )
    parser.add_argument(
        "--quality",
        type=options.whole(1, 100),
        help="quality of JPEG (default: 95 for what has to be encoded; files of JPEG and PNG pictures that are not "
        "resized are taken as they are)",
    )
    parser.add_argument(
        "--train-ratio",
        type=options.finite("a number above 0, at most 1", lambda number: 0 < number <= 1),
        default=1.0,
        metavar="SHARE",
        help="part of each class that goes into OUT_train.*, the rest into OUT_val.* (default: 1, all in OUT.*)",
    )
    parser.add_argument(
        "--shuffle", action="store_true", help="write in a random order (default: class by class)"
    )
    parser.add_argument("--seed", type=options.seed, default=0, help="seed of that order (default: 0)")
    parser.add_argument(
        "--threads", type=options.whole(1, 256), default=2, help="threads that decode (default: 2)"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace files that are there (default: refuse)"
    )


def _run(args: argparse.Namespace) -> int:
    parts = _parts(args)
    if not args.overwrite:
        _refuse_others(parts)
    classes, pictures = find_pictures(args.folder)
    _print_classes(classes, pictures)
    both = split_pictures(pictures, args.train_ratio, args.seed if args.shuffle else None)
    chosen = dict(zip(parts, both))
    for prefix, rows in chosen.items():
        if not rows:
            raise ArgumentError(
                f"--train-ratio {args.train_ratio:g} leaves no picture for {prefix}.rec; expected a smaller share"
            )
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    unusable = write_pictures(args.folder, chosen, Recoding(args.resize, args.quality), args.threads)
    for prefix, rows in chosen.items():
        count = sum(row.path not in unusable for row in rows)
        print(
            f"written: {prefix}.rec ({os.path.getsize(f'{prefix}.rec'):,} bytes, {count} pictures), .idx and .lst"
        )
    _print_unusable(list(unusable.values()))
    return 1 if unusable else 0


def _parts(args: argparse.Namespace) -> list[str]:
    """Return the prefixes to write."""
    if not os.path.basename(args.out):
        raise ArgumentError(
            f"OUT is {args.out!r}, a folder; expected a path without ending, such as data/pictures"
        )
    return [args.out] if args.train_ratio == 1 else [f"{args.out}_train", f"{args.out}_val"]


def _refuse_others(parts: Sequence[str]) -> None:
    there = [
        path
        for part in parts
        for path in (f"{part}.rec", f"{part}.idx", f"{part}.lst")
        if os.path.exists(path)
    ]
    if there:
        raise ArgumentError(f"{there[0]} is there already; take another OUT, or --overwrite")


def _print_classes(classes: Sequence[str], pictures: Sequence[Picture]) -> None:
    counts = [0] * len(classes)
    for picture in pictures:
        counts[picture.label] += 1
    for label, kind in enumerate(classes[:_SHOWN]):
        print(f"class {label}: {kind}, {counts[label]} pictures")
    if len(classes) > _SHOWN:
        print(f"... {len(classes)} classes, {len(pictures)} pictures")


def _print_unusable(reasons: Sequence[str]) -> None:
    for reason in reasons[:_SHOWN]:
        print(f"left out: {reason}", file=sys.stderr)
    if len(reasons) > _SHOWN:
        print(f"... {len(reasons)} pictures are left out", file=sys.stderr)
