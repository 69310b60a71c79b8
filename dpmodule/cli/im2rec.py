"""``dpmodule im2rec``: a folder of pictures becomes a record file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ..base import ArgumentError
from ..recordio.folder import Picture, ImageEncoding, find_pictures, split_pictures, write_pictures

_SHOWN = 10
"""So many classes, and pictures that cannot be used, are printed by name."""


def run(args: argparse.Namespace) -> int:
    """Pack a folder of pictures; return 1 if some cannot be read."""
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
    unusable = write_pictures(args.folder, chosen, ImageEncoding(args.resize, args.quality), args.threads)
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
