"""Places that a build may take a width from, and places where a number of steps changes no tensor (`is_hidden`)."""

from __future__ import annotations

import gzip
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import safetensors.torch
import torch
from PIL import Image

BEFORE, AFTER, FEATURES = 16, 48, 8
MODULE = "from torch import nn\nWIDTH = {}\ndef scale(x):\n    return 2 * x\n"


@dataclass(frozen=True)
class Kind:
    """A place that a width is taken from: the lines of a cell, the file, and how it is written.

    If it is hidden, the width is a number of steps of the network, which stays 16 wide.
    """

    lines: str
    file: str = ""
    write: Callable[[Path, int], object] = lambda path, width: path.write_text(MODULE.format(width))
    call: str = "self.fc(x)"
    is_hidden: bool = False


def write_zip(path: Path, width: int) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("zipped.py", MODULE.format(width))


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


def hide(helper: str, call: str = "self.fc(x)", lines: str = "import helper") -> Kind:
    """Describe a helper whose steps (`STEPS`) no tensor of the network shows."""

    def write(path: Path, steps: int) -> None:
        path.write_text("import torch\nfrom torch import nn\n" + helper.replace("STEPS", str(steps)))

    return Kind(f"{lines}\nWIDTH = {BEFORE}", "helper.py", write, call, is_hidden=True)


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
    "a zip": Kind("sys.path.insert(0, 'lib.zip')\nfrom zipped import WIDTH", "lib.zip", write_zip),
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
    "exec": Kind("exec(open('helper.py').read())", "helper.py"),
    "spec_from_file": Kind(
        "from importlib import util\nspec = util.spec_from_file_location('m', 'helper.py')\n"
        "m = util.module_from_spec(spec)\nspec.loader.exec_module(m)\nWIDTH = m.WIDTH",
        "helper.py",
    ),
    "json": Kind(
        "import json\nWIDTH = json.load(open('c.json'))['width']", "c.json", partial(write_text, '{{"width": {}}}')
    ),
    "os.open": Kind("WIDTH = os.read(os.open('w.txt', os.O_RDONLY), 9)", "w.txt", partial(write_text, "{}")),
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
    "sqlite3": Kind(
        "import sqlite3\nWIDTH = sqlite3.connect('w.db').execute('SELECT width FROM widths').fetchone()[0]",
        "w.db",
        write_database,
    ),
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
REPEAT = "    for _ in range(STEPS):\n        y = x + 1\n    return x\n"
LIBRARY = (
    "import ctypes\nLIB = ctypes.CDLL('./lib.so')\n"
    "nn.Linear.forward = lambda self, x: (LIB.width(), nn.functional.linear(x, self.weight, self.bias))[1]\n"
    f"WIDTH = {BEFORE}"
)
HIDDEN: dict[str, Kind] = {
    "threads": hide("torch.set_num_threads(STEPS)\n"),
    "a setting of torch": hide("torch.backends.mkldnn.enabled = STEPS == 16\n"),
    "an environment variable of the cell": hide("import os\nos.environ['NETS_STEPS'] = str(STEPS)\n"),
    "a replaced function": hide("relu = torch.relu\ndef steps(x):\n" + REPEAT + "torch.relu = steps\n"),
    "a replaced method": hide(
        "linear = nn.Linear.forward\ndef steps(self, x):\n"
        + REPEAT.replace("return x", "return linear(self, x)")
        + "nn.Linear.forward = steps\n"
    ),
    "a hook of all modules": hide(
        "def steps(module, x, y):\n    for _ in range(STEPS):\n        y + 1\n"
        "handle = nn.modules.module.register_module_forward_hook(steps)\n"
    ),
    "an operator of one's own": hide(
        "@torch.library.custom_op('nets::steps', mutates_args=())\ndef steps(x: torch.Tensor) -> torch.Tensor:\n"
        + REPEAT.replace("return x", "return x.clone()"),
        "torch.ops.nets.steps(self.fc(x))",
    ),
    "a kernel of an operator": hide(
        "LIBRARY = torch.library.Library('nets2', 'DEF')\nLIBRARY.define('steps(Tensor x) -> Tensor')\n"
        "def steps(x):\n" + REPEAT.replace("return x", "return x.clone()") + "LIBRARY.impl('steps', steps, 'CPU')\n",
        "torch.ops.nets2.steps(self.fc(x))",
    ),
    "a branch of a script": hide(
        "@torch.jit.script\ndef steps(x):\n    if x.sum() > 1e9:\n        for _ in range(STEPS):\n"
        "            x = x + 1\n    return x\n",
        "steps(self.fc(x))",
        "from helper import steps",
    ),
    "what a library does": Kind(LIBRARY, "lib.so", write_library, is_hidden=True),
}
