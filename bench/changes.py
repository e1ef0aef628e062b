"""Claims that changed networks are measured again and others are not: changes that matter and some that do not.

Each network has a width that its build takes from somewhere: a module, a file, a variable. The width is changed, in
three ways that hide it from sizes and times, and the network is identified again as a run does it: by what its last
build loaded (``known``), and as ``--again`` does it, by what is prepared. A change that matters is *stale* if either
has the old width; one that does not matter is *needless* if the network has another content. Some changes alter no
tensor: a replaced function, a setting, a library; these are stale if the network has the old content. It prints a line
for each change, the counts last, and takes six minutes.

    python bench/changes.py [KIND …]
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from width_sources import AFTER, BEFORE, FEATURES, HIDDEN, KINDS, MODULE, Kind

from ngbkit.device import contents, plan
from ngbkit.device.spec import Spec
from ngbkit.device.world import World
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads import cell

CELL = """import os, sys
from pathlib import Path
import torch
from torch import nn
{}
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(8, int(width))
    def forward(self, x):
        return self.fc(x).relu()
model = Net(WIDTH)
input_shape = (8,)
"""


def overwrite(write: Callable[[int], object], path: Path) -> None:
    write(AFTER)


def keep_time(write: Callable[[int], object], path: Path) -> None:
    status = path.stat() if path.exists() else None
    write(AFTER)
    if status is not None:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def go_back(write: Callable[[int], object], path: Path) -> None:
    """Change, change back and change again at once: in the same second, perhaps in the same tick of the clock."""
    write(AFTER)
    write(BEFORE)
    write(AFTER)


CHANGES = {"overwritten": overwrite, "with its old time": keep_time, "and back and forth": go_back}
HELPER = MODULE.format(BEFORE)


def replace_text(name: str, old: str, new: str, folder: Path) -> None:
    path = folder / name
    path.write_text(path.read_text().replace(old, new))


def rename(folder: Path) -> None:
    (folder / "helper.py").rename(folder / "assistant.py")
    replace_text("cell.py", "helper", "assistant", folder)


def rename_function(folder: Path) -> None:
    replace_text("helper.py", "def scale", "def double", folder)
    replace_text("cell.py", "WIDTH, scale", "WIDTH, double", folder)
    replace_text("cell.py", "scale(self", "double(self", folder)


def copy_to_new_file(folder: Path) -> None:
    shutil.copy(folder / "helper.py", folder / "draft")
    (folder / "draft").replace(folder / "helper.py")


def add_file(name: str, folder: Path) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("WIDTH = 99\n")


# What does not matter, for a cell that imports a module and reads a file of weights.
HARMLESS: dict[str, Callable[[Path], object]] = {
    "its time": lambda folder: (folder / "helper.py").touch(),
    "a new file of the same bytes": copy_to_new_file,
    "a comment of the module": partial(replace_text, "helper.py", "WIDTH = 16", "WIDTH = 16  # neurons"),
    "a comment of the cell": partial(replace_text, "cell.py", "model =", "# the model\nmodel ="),
    "layout of the cell": partial(replace_text, "cell.py", "nn.Linear(8, int(width))", "nn.Linear( 8,int( width ) )"),
    "a docstring": partial(replace_text, "helper.py", "return 2 * x", '"""Double."""\n    return 2 * x'),
    "a function that nothing calls": partial(
        replace_text, "helper.py", "def scale", "def other():\n    return 1\ndef scale"
    ),
    "a renamed module": rename,
    "a renamed function": rename_function,
    "the order of imports": partial(
        replace_text,
        "cell.py",
        "import os, sys\nfrom pathlib import Path\n",
        "from pathlib import Path\nimport os, sys\n",
    ),
    "a file beside": partial(add_file, "unrelated.py"),
    "removed byte code": lambda folder: shutil.rmtree(folder / "__pycache__", ignore_errors=True),
    "weights saved again": lambda folder: write_weights(folder, 0),
    "a key of the file that nothing reads": lambda folder: (folder / "c.json").write_text('{"scale": 1, "name": "b"}'),
}
HARMLESS_LINES = """import json
from helper import WIDTH, scale
SCALE = json.load(open('c.json'))['scale']
BIAS = torch.load('bias.pt')
"""
HARMLESS_CELL = (
    CELL.format(HARMLESS_LINES).replace("relu()", "relu() * SCALE").replace("self.fc(x)", "scale(self.fc(x) + BIAS)")
)


def write_weights(folder: Path, number: int) -> None:
    """Save the same weights again: an archive has its own name inside."""
    path = folder / f"bias{number or ''}.pt"
    torch.save(torch.arange(BEFORE) * 0.1, path)
    if number:
        path.replace(folder / "bias.pt")


class Identifier:
    """Identifies the networks of one state folder, as runs one after the other do."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir, self._numbers = state_dir, count()

    def identify(self, folder: Path, variables: dict[str, str | None]) -> tuple[str, str, int]:
        """Return the content that a known run has, the one that is prepared, and the width of that."""
        (workload,) = cell.from_source((folder / "cell.py").read_text())
        world = replace(World.capture([workload]), folder=str(folder), variables=variables)
        spec = Spec(
            run_id=f"run{next(self._numbers)}",
            device="cpu",
            state_dir=self.state_dir,
            sweep=Grid(workload, compilers=["identity"], repeats=3),
            only_prepares=True,
            world=world,
        )
        key = facts_key(workload.name, {})
        reused, _ = contents.find_contents(spec)[key]
        events: list[dict[str, Any]] = []
        plan.carry_out(spec, events.append)
        facts = next((event["value"] for event in events if event["kind"] == "facts"), {})
        return reused, facts.get("content", ""), (facts.get("parameters") or 0) // (FEATURES + 1)


def change_width(identifier: Identifier, kind: Kind, change: Callable[..., None], folder: Path) -> str:
    """Change the width of a network in a folder, and return what is stale; empty if nothing is."""
    (folder / "cell.py").write_text(CELL.format(kind.lines).replace("self.fc(x)", kind.call))
    if "second" in kind.lines:
        (folder / "second").mkdir()
        (folder / "second" / "helper.py").write_text(HELPER)
    path = folder / kind.file
    path.parent.mkdir(parents=True, exist_ok=True)
    variables: dict[str, str | None] = {}

    def write(width: int) -> None:
        if kind.file.isupper():
            variables[kind.file] = str(width)
        else:
            kind.write(path, width)

    write(BEFORE)
    _, before, width = identifier.identify(folder, dict(variables))
    if width != BEFORE:
        return f"was not built: width {width}"
    change(write, path)
    reused, after, width = identifier.identify(folder, dict(variables))
    return ", ".join(
        name
        for name, is_stale in (
            ("known", reused == before),
            ("prepared", width != (BEFORE if kind.is_hidden else AFTER)),
            ("content", after == before),
        )
        if is_stale
    )


def change_harmlessly(identifier: Identifier, change: Callable[[Path], object], moment: str, folder: Path) -> str:
    """Change what does not matter, and return what is needless; empty if nothing is."""
    (folder / "helper.py").write_text(HELPER)
    (folder / "cell.py").write_text(HARMLESS_CELL)
    (folder / "c.json").write_text('{"scale": 1, "name": "a"}')
    write_weights(folder, 1)
    _, before, width = identifier.identify(folder, {})
    if width != BEFORE:
        return f"was not built: width {width}"
    if moment == "later":
        time.sleep(1.1)
    change(folder)
    if moment == "twice":
        identifier.identify(folder, {})
    _, after, _ = identifier.identify(folder, {})
    return "" if after == before else "measured again"


def list_cases(identifier: Identifier) -> Iterator[tuple[str, str, bool, Callable[[Path], str]]]:
    """Yield each change: what is changed, how, whether it matters, and the function that tries it in a folder."""
    for name, kind in {**KINDS, **HIDDEN}.items():
        for manner, change in CHANGES.items():
            yield name, manner, True, partial(change_width, identifier, kind, change)
    for name, harmless_change in HARMLESS.items():
        for moment in ("at once", "later", "twice"):
            yield name, moment, False, partial(change_harmlessly, identifier, harmless_change, moment)


def main(names: list[str]) -> None:
    root = Path(tempfile.mkdtemp(prefix="changes-"))
    counts: Counter[str] = Counter()
    try:
        for number, (name, manner, matters, change) in enumerate(list_cases(Identifier(root / "state"))):
            if names and name not in names:
                continue
            folder = root / f"project{number}"
            folder.mkdir()
            problem = change(folder)
            wrong, right = ("stale", "measured again") if matters else ("needless", "known")
            counts.update({"changed" if matters else "harmless": 1, wrong: bool(problem)})
            print(f"{name}, {manner}: {f'{wrong.upper()} ({problem})' if problem else right}", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(sys.argv[1:])
