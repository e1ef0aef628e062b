"""Claims that changed networks are measured again and others are not: 120 changes that matter and 60 that do not.

Each network has a width that its build takes from somewhere: a module, a file, a variable. The width is changed, in
three ways that hide it from sizes and times, and the network is identified again as a run does it: by what its last
build loaded (``known``), and as ``--again`` does it, by what is prepared. A change that matters is *stale* if either
has the old width; one that does not matter is *needless* if the network has another content. It prints a line for each
change, the counts last, and takes five minutes.

    python bench/changes.py [KIND …]
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import safetensors.torch
import torch
from PIL import Image

from ngbkit.device import contents, plan
from ngbkit.device.spec import Spec
from ngbkit.device.world import World
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads import cell

BEFORE, AFTER, FEATURES = 16, 48, 8
MODULE = "from torch import nn\nWIDTH = {}\ndef scale(x):\n    return 2 * x\n"
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


@dataclass(frozen=True)
class Kind:
    """A place that a width is taken from: the lines of a cell, the file, and how it is written."""

    lines: str
    file: str = ""
    write: Callable[[Path, int], object] = lambda path, width: path.write_text(MODULE.format(width))


def write_zip(name: str, path: Path, width: int) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, MODULE.format(width))


def write_bytecode(path: Path, width: int) -> None:
    source = path.with_name("source.txt")
    source.write_text(MODULE.format(width))
    command = "import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[2], doraise=True)"
    subprocess.run([sys.executable, "-c", command, str(source), str(path)], check=True)
    source.unlink()


def write_database(path: Path, width: int) -> None:
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE widths (width INTEGER)")
        connection.execute("INSERT INTO widths VALUES (?)", (width,))
    connection.close()


def write_library(path: Path, width: int) -> None:
    source = path.with_suffix(".c")
    source.write_text(f"int width(void) {{ return {width}; }}")
    draft = path.with_suffix(".draft")  # a process may have the library mapped
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(draft), str(source)], check=True)
    draft.replace(path)
    source.unlink()


def write_dataset(path: Path, width: int) -> None:
    with h5py.File(path, "w") as file:
        file["width"] = width


def write_program(path: Path, width: int) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(FEATURES, width)), str(path))


def write_link(path: Path, width: int) -> None:
    target = path.with_name(f"target-{width}.py")
    target.write_text(MODULE.format(width))
    path.unlink(missing_ok=True)
    path.symlink_to(target.name)


def write_many(path: Path, width: int) -> None:
    for old in path.parent.glob("layer*.txt"):
        old.unlink()
    for number in range(width):
        path.with_name(f"layer{number}.txt").write_text("")


def write_text(text: str, path: Path, width: int) -> None:
    path.write_text(text.format(width))


def write_new(path: Path, width: int) -> None:
    """Write a file that is missing at first."""
    if width != BEFORE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MODULE.format(width) if path.suffix == ".py" else str(width))


def write_version(path: Path, width: int) -> None:
    path.write_text(f"Metadata-Version: 2.1\nName: widths\nVersion: {width}\n")


OPTIONAL = "try:\n    {}\nexcept {}:\n    WIDTH = 16"
KINDS: dict[str, Kind] = {
    "a module beside": Kind("from helper import WIDTH", "helper.py"),
    "a folder without __init__": Kind("from src.models.net import WIDTH", "src/models/net.py"),
    "a package": Kind("from package.net import WIDTH", "package/net.py"),
    "a module of a module": Kind(
        "import sys; sys.path.insert(0, 'inner')\nfrom outer import WIDTH", "inner/constants.py"
    ),
    "sys.path.insert": Kind("sys.path.insert(0, 'libs/deep')\nfrom helper import WIDTH", "libs/deep/helper.py"),
    "a zip": Kind(
        "sys.path.insert(0, 'lib.zip')\nfrom zipped import WIDTH", "lib.zip", partial(write_zip, "zipped.py")
    ),
    "byte code alone": Kind("from compiled import WIDTH", "compiled.pyc", write_bytecode),
    "a library": Kind("import ctypes\nWIDTH = ctypes.CDLL('./lib.so').width()", "lib.so", write_library),
    "site-packages": Kind(
        "sys.path.append('env/site-packages')\nfrom loose import WIDTH", "env/site-packages/loose.py"
    ),
    "a version": Kind(
        "sys.path.append('env/site-packages')\nfrom importlib import metadata\nWIDTH = metadata.version('widths')",
        "env/site-packages/widths-1.dist-info/METADATA",
        write_version,
    ),
    "import_module": Kind("import importlib\nWIDTH = importlib.import_module('hel' + 'per').WIDTH", "helper.py"),
    "exec": Kind("exec(open('helper.py').read())", "helper.py"),
    "runpy": Kind("import runpy\nWIDTH = runpy.run_path('helper.py')['WIDTH']", "helper.py"),
    "spec_from_file": Kind(
        "from importlib import util\nspec = util.spec_from_file_location('m', 'helper.py')\n"
        "m = util.module_from_spec(spec)\nspec.loader.exec_module(m)\nWIDTH = m.WIDTH",
        "helper.py",
    ),
    "torch.hub": Kind(
        "WIDTH = torch.hub.load('hub', 'width', source='local')",
        "hub/hubconf.py",
        partial(write_text, "def width():\n    return {}\n"),
    ),
    "json": Kind(
        "import json\nWIDTH = json.load(open('c.json'))['width']", "c.json", partial(write_text, '{{"width": {}}}')
    ),
    "configparser": Kind(
        "import configparser\nc = configparser.ConfigParser()\nc.read('c.ini')\nWIDTH = c['a']['width']",
        "c.ini",
        partial(write_text, "[a]\nwidth = {}\n"),
    ),
    "yaml": Kind(
        "import yaml\nWIDTH = yaml.safe_load(Path('c.yaml').read_text())['width']",
        "c.yaml",
        partial(write_text, "width: {}\n"),
    ),
    "csv": Kind("import csv\nWIDTH = next(csv.reader(open('c.csv')))[0]", "c.csv", partial(write_text, "{},1\n")),
    "FileIO": Kind("import io\nWIDTH = io.FileIO('w.txt').read()", "w.txt", partial(write_text, "{}")),
    "os.open": Kind("WIDTH = os.read(os.open('w.txt', os.O_RDONLY), 9)", "w.txt", partial(write_text, "{}")),
    "linecache": Kind("import linecache\nWIDTH = linecache.getline('w.txt', 1)", "w.txt", partial(write_text, "{}\n")),
    "mmap": Kind(
        "import mmap\nfile = open('w.txt')\nWIDTH = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ).read()",
        "w.txt",
        partial(write_text, "{}"),
    ),
    "gzip": Kind(
        "import gzip\nWIDTH = gzip.open('w.gz').read()",
        "w.gz",
        lambda path, width: path.write_bytes(gzip.compress(str(width).encode())),
    ),
    "pickle": Kind(
        "import pickle\nWIDTH = pickle.load(open('w.pkl', 'rb'))",
        "w.pkl",
        lambda path, width: path.write_bytes(pickle.dumps(width)),
    ),
    "sqlite3": Kind(
        "import sqlite3\nWIDTH = sqlite3.connect('w.db').execute('SELECT width FROM widths').fetchone()[0]",
        "w.db",
        write_database,
    ),
    "numpy.load": Kind("import numpy\nWIDTH = numpy.load('w.npy')", "w.npy", lambda path, width: np.save(path, width)),
    "numpy.memmap": Kind(
        "import numpy\nWIDTH = numpy.memmap('w.bin', numpy.int64)[0]",
        "w.bin",
        lambda path, width: np.array([width]).tofile(path),
    ),
    "pandas": Kind(
        "import pandas\nWIDTH = pandas.read_csv('c.csv').width[0]", "c.csv", partial(write_text, "width\n{}\n")
    ),
    "h5py": Kind("import h5py\nWIDTH = h5py.File('w.h5')['width'][()]", "w.h5", write_dataset),
    "an image": Kind(
        "from PIL import Image\nWIDTH = Image.open('w.png').width",
        "w.png",
        lambda path, width: Image.new("L", (width, 1)).save(path),
    ),
    "torch.load": Kind("WIDTH = torch.load('w.pt')", "w.pt", lambda path, width: torch.save(torch.tensor(width), path)),
    "torch.from_file": Kind(
        "WIDTH = torch.from_file('w.bin', size=1, dtype=torch.int64)",
        "w.bin",
        lambda path, width: np.array([width]).tofile(path),
    ),
    "torch.jit.load": Kind("WIDTH = torch.jit.load('w.pt').out_features", "w.pt", write_program),
    "safetensors": Kind(
        "from safetensors.torch import load_file\nWIDTH = load_file('w.safetensors')['w'][0]",
        "w.safetensors",
        lambda path, width: safetensors.torch.save_file({"w": torch.tensor([width])}, path),
    ),
    "a folder's names": Kind(
        "WIDTH = sum(name.startswith('layer') for name in os.listdir('.'))", "layer0.txt", write_many
    ),
    "a program": Kind(
        "import subprocess\nWIDTH = subprocess.check_output(['cat', 'w.txt'])", "w.txt", partial(write_text, "{}")
    ),
    "a variable": Kind("WIDTH = os.environ['WIDTH']", "WIDTH"),
    "a link": Kind("from linked import WIDTH", "linked.py", write_link),
    "a file that was missing": Kind(OPTIONAL.format("WIDTH = open('w.txt').read()", "OSError"), "w.txt", write_new),
    "a module that was missing": Kind(OPTIONAL.format("from extra import WIDTH", "ImportError"), "extra.py", write_new),
    "a module that comes first": Kind(
        "sys.path[:0] = ['first', 'second']\nfrom helper import WIDTH", "first/helper.py", write_new
    ),
}


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
    "empty lines": partial(replace_text, "helper.py", "def scale", "\n\n\ndef scale"),
    "layout of the cell": partial(replace_text, "cell.py", "nn.Linear(8, int(width))", "nn.Linear( 8,int( width ) )"),
    "a docstring": partial(replace_text, "helper.py", "return 2 * x", '"""Double."""\n    return 2 * x'),
    "a function that nothing calls": partial(
        replace_text, "helper.py", "def scale", "def other():\n    return 1\ndef scale"
    ),
    "a renamed module": rename,
    "a renamed function": rename_function,
    "a renamed variable": partial(replace_text, "helper.py", "(x):\n    return 2 * x", "(y):\n    return 2 * y"),
    "the order of imports": partial(
        replace_text,
        "cell.py",
        "import os, sys\nfrom pathlib import Path\n",
        "from pathlib import Path\nimport os, sys\n",
    ),
    "an import that nothing uses": partial(replace_text, "cell.py", "import os, sys\n", "import os, sys, json\n"),
    "a file beside": partial(add_file, "unrelated.py"),
    "a folder beside": partial(add_file, "more/notes.txt"),
    "a second cell's file": partial(add_file, "cell2.py"),
    "removed byte code": lambda folder: shutil.rmtree(folder / "__pycache__", ignore_errors=True),
    "weights saved again": lambda folder: write_weights(folder, 0),
    "a key of the file that nothing reads": lambda folder: (folder / "c.json").write_text('{"scale": 1, "name": "b"}'),
    "layout of the file": lambda folder: (folder / "c.json").write_text('{\n  "scale": 1,\n  "name": "a"\n}'),
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
    (folder / "cell.py").write_text(CELL.format(kind.lines))
    if "outer" in kind.lines:
        (folder / "inner").mkdir()
        (folder / "inner" / "outer.py").write_text("from constants import WIDTH\n")
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
        for name, is_stale in (("known", reused == before), ("prepared", width != AFTER), ("content", after == before))
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
    for name, kind in KINDS.items():
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
