"""What a device keeps, made up: preparations, results of tuning, and the verb that is about them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import options
from ngbkit.cluster.caches import contents
from ngbkit.cluster.caches.contents import Place
from ngbkit.commands import arguments
from ngbkit.commands.cache import see_to_caches
from ngbkit.commands.cache_arguments import CACHE
from ngbkit.commands.listing import Answer

DAY_S = 86400.0
META = {
    "network": "resnet18",
    "batch_size": 1,
    "target": "llvm -mcpu=znver5",
    "versions": {"numpy": np.__version__},
    "candidates": 200,
    "seconds": 300.0,
    "created": 1.9e9,
}


def carry_out(*words: str) -> Answer:
    """What `ngbkit cache` answers."""
    parser = arguments.Parser("ngbkit cache")
    for argument in CACHE:
        parser.add_argument(*argument.flags, **argument.keywords)
    return see_to_caches(arguments.parse(parser, words))


def prepare(state_dir: Path, key: str, size: int = 1000, days: float = 0.0, device: str = "cpu") -> Path:
    """A preparation that was used so many days ago."""
    folder = state_dir / "cache" / device / key
    (folder / "compiled" / "0123").mkdir(parents=True)
    about = {"facts": {"parameters": 11_689_512}}
    (folder / "prepared.json").write_text(json.dumps(about))
    (folder / "batch-1.onnx").write_bytes(b"\0" * (size - (folder / "prepared.json").stat().st_size))
    os.utime(folder, (time.time() - days * DAY_S,) * 2)
    return folder


def tune(state_dir: Path, key: str, device: str = "cpu", compiler: str = "tvm", **about: Any) -> Path:
    """A result of tuning."""
    folder = state_dir / "tuning" / device / compiler / key
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({**META, **about}))
    (folder / "records.json").write_text(f"records of {key}")
    (folder / "network.so").write_bytes(b"\x7fELF")
    return folder


def keys(place: Place) -> list[str]:
    return [kept.key for kept in contents.look(place)]


def elsewhere(tmp_path: Path, name: str = "elsewhere") -> Any:
    """The state folder of another machine, while the block lasts."""
    return options.set_options(state_dir=tmp_path / name)
