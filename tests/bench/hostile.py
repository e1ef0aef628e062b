"""Hostile sites, arrays, pictures and programs by generators, each command in a process of its own.

    python tests/bench/hostile.py [--count 2500] [--seed 0] [--only sites,arrays,…]

Claim: no file of others is believed further than it is checked, and none ends in a traceback, a signal, a hang, an
escape sequence on the terminal, or files left behind. A row for each generator has the inputs and, of them, the
*silent* (an altered file that is taken as it was), *traceback*, *killed* (by a signal), *hung* (longer than 60 s),
*escape* (a control character printed) and *left* (files that were left behind); and the seconds. Each of these is
printed with the line that makes it again; the exit code is 1 if there is one. `tests/fuzz/run.py` has further inputs:
datasets, journals, ONNX files, predictors and command lines.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from ngbkit import cli, options
from ngbkit.errors import NgbkitError, strip_controls
from ngbkit.figures import converter

LIMIT_S, WORKERS = 60, os.cpu_count() or 1
KINDS = ("silent", "ran", "traceback", "killed", "hung", "escape", "left")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
FOREIGN = ("\x1b[2J", "\x1b]0;title\x07", "\x7f", "\x9b31m", "\u202e", "\ufffe", "a\nb", "<script>", "=1+1", "..")
NESTED = "[" * 100_000


@dataclass(frozen=True)
class Case:
    """A command on hostile input, or a call on the same words."""

    label: str
    words: list[str]
    # Whether it must be refused, or said to be altered; others may succeed.
    is_altered: bool = False
    call: Callable[[list[str]], Any] = cli.main


Generator = Callable[[Path, Path, random.Random], Case]
"""Makes a case of what is in the first folder, in the second one, which is empty."""


def damage(content: bytes, chooser: random.Random) -> bytes:
    """Flip a bit of a content, cut it, insert bytes, or append some."""
    kind = chooser.choice(["flip", "flip", "flip", "cut", "insert", "append"])
    place = chooser.randrange(max(len(content), 1))
    if kind == "flip" and content:
        changed = bytearray(content)
        changed[place] ^= 1 << chooser.randrange(8)
        return bytes(changed)
    if kind == "cut":
        return content[:place]
    extra = chooser.randbytes(chooser.randrange(1, 40))
    return content + extra if kind == "append" else content[:place] + extra + content[place:]


def alter_json(value: object, chooser: random.Random) -> object:
    """Replace one part of a JSON value."""
    if isinstance(value, dict) and value and chooser.random() < 0.9:
        key = chooser.choice(sorted(value))
        return {**value, key: alter_json(value[key], chooser)}
    if isinstance(value, list) and value and chooser.random() < 0.9:
        place = chooser.randrange(len(value))
        return [*value[:place], alter_json(value[place], chooser), *value[place + 1 :]]
    choices: list[Any] = [None, True, -1, 10**400, 1e308, [], {}, [[[[]]]], *FOREIGN]
    choices += ["../../etc/passwd", f"{value}x", "/"]
    return chooser.choice([choice for choice in choices if choice != value])


def make_site(base: Path, folder: Path, chooser: random.Random) -> Case:
    """Make an altered site or archive, to be verified or replayed."""
    copy = Path(shutil.copytree(base / "site", folder / "site", symlinks=True))
    kind = chooser.choice(["file", "file", "manifest", "stranger", "archive", "member", "replay"])
    words, is_altered, label = ["verify", str(copy)], True, ""
    if kind in ("file", "replay", "archive"):
        names = sorted(path for path in copy.rglob("*") if path.is_file())
        path = copy / "archive.zip" if kind == "archive" else chooser.choice(names)
        content = damage(path.read_bytes(), chooser)
        label, is_altered = path.name, content != path.read_bytes()
        path.write_bytes(content)
        words = ["replay", str(copy), "-o", str(folder / "out")] if kind == "replay" else words
    elif kind == "manifest":
        manifest = copy / "ngbkit-site.json"
        manifest.write_text(json.dumps(alter_json(json.loads(manifest.read_text()), chooser)))
        is_altered = False  # whoever writes it anew may state another title
    elif kind == "stranger":
        label = chooser.choice(["link", "pipe", "empty", "extra"])
        place = copy / chooser.choice(["x", "notebooks/x", "notebooks/data/x.py", "_static/x"])
        place.parent.mkdir(parents=True, exist_ok=True)
        make: dict[str, Callable[[], object]] = {
            "link": lambda: place.symlink_to("/etc"),
            "pipe": lambda: os.mkfifo(place),
            "empty": place.mkdir,
            "extra": lambda: place.write_text("x"),
        }
        make[label]()
    else:
        name = chooser.choice(["../x", "/tmp/x", "a/../../x", "notebooks/\x1b[2Jx.ipynb", "a\\..\\x", "x" * 300])
        with zipfile.ZipFile(copy / "archive.zip", "a") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive.writestr(zipfile.ZipInfo(name), "x")
        words = [chooser.choice(["verify", "replay"]), str(copy / "archive.zip")]
        words += ["-o", str(folder / "out")] if words[0] == "replay" else []
    return Case(f"{kind} {label}", words, is_altered)


def make_array(base: Path, folder: Path, chooser: random.Random) -> Case:
    """Make values of inputs whose header, size or kind is hostile."""
    shapes = ("(10**10,)", "(10**30,)", f"({10**30},)", "(-1,)", "(1,)*100", "()", "(0,)", "(1e9,)", NESTED, "(2, 16)")
    file = folder / chooser.choice(["x.npz", "x.npy", "x.npz", "input_0.pb"])
    kind = chooser.choice(["header", "bomb", "pipe", "folder", "noise", "damaged", "object"])
    content = io.BytesIO()
    if kind == "header":
        text = f"{{'descr': '<f{chooser.choice('48')}', 'fortran_order': False, 'shape': {chooser.choice(shapes)}, }}\n"
        content.write(b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text.encode() + bytes(64))
    elif kind == "bomb":
        header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 27, 2)}
        np.lib.format.write_array_header_2_0(content, header)
        content.write(bytes(1 << 24))
    elif kind in ("damaged", "object"):
        np.save(content, np.ones((2, 16), np.float32) if kind == "damaged" else np.array([{}]), allow_pickle=True)
    body = damage(content.getvalue(), chooser) if kind == "damaged" else content.getvalue()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "noise":
        file.write_bytes(chooser.randbytes(chooser.randrange(2000)))
    elif file.suffix == ".npz":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", body)
    else:
        file.write_bytes(body)
    return Case(f"{kind} {file.name}", ["inputs", str(base / "mlp.onnx"), "--inputs", f"mlp={file}"])


def make_picture(base: Path, folder: Path, chooser: random.Random) -> Case:
    """Make a picture that calibrates: damaged, of a hostile size, or of a format that starts a program."""
    from PIL import Image

    pixels = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8))
    kind = chooser.choice(["damaged", "damaged", "damaged", "damaged", "size", "program", "pipe"])
    form = "EPS" if kind == "program" else "PNG"
    file, content = folder / "x.png", io.BytesIO()
    if kind == "pipe":
        os.mkfifo(file)
        return Case(kind, [str(folder)], call=load_pictures)
    if kind == "size":
        side = chooser.choice([1, 20_000, 120_000, 1_000_000])
        pixels = Image.new("1", (side, 1) if chooser.random() < 0.5 else (1, side))
    elif kind == "damaged":
        form = chooser.choice(["PNG", "JPEG", "BMP", "WEBP", "TIFF", "PPM"])
        mode = chooser.choice(["RGB", "L", "P", "RGBA", "1"])
        pixels = pixels if form in ("JPEG", "PPM") else pixels.convert(mode)
    pixels.save(content, form)
    file.write_bytes(damage(content.getvalue(), chooser) if kind == "damaged" else content.getvalue())
    return Case(f"{kind} {form}", [str(folder)], call=load_pictures)


def load_pictures(words: list[str]) -> None:
    """Load a folder of pictures for a network that takes them."""
    from ngbkit.workloads import onnx, pictures

    network = onnx.SOURCE.parse(str(Path(words[0]).parent / "pictures.onnx"))
    assert network is not None
    pictures.load(Path(words[0]), network)


def make_program(base: Path, folder: Path, chooser: random.Random) -> Case:
    """Make an archive of an exported program: damaged, or with code in one of its texts."""
    source, file = base / "program.pt2", folder / "x.pt2"
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    touch = "__import__('pathlib').Path('canary').touch()"
    codes = (touch, f"a={touch}", f"a:{touch}", f"a):\n    {touch}\nif (1", f"Max('{touch}')", f"Symbol({touch!r})")
    kind = chooser.choice(["code", "code", "json", "damaged", "pickle"])
    name = chooser.choice([name for name in members if name.endswith(".json")])
    if kind == "code":
        text = json.loads(members[name])
        texts = list(find_texts(text))
        if texts:
            sizes = [text for text in texts if text[1] == "expr_str"]  # few of many, and evaluated
            place, key = chooser.choice(sizes if sizes and chooser.random() < 0.3 else texts)
            place[key] = chooser.choice(codes)
        members[name] = json.dumps(text).encode()
    elif kind == "json":
        members[name] = json.dumps(alter_json(json.loads(members[name]), chooser)).encode()
    elif kind == "pickle":
        harm = f"cbuiltins\nexec\n(V{touch}\ntR.".encode()
        members[chooser.choice([*members, "net/x", "net/data/constants/custom_obj_0"])] = harm
    with zipfile.ZipFile(file, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    if kind == "damaged":
        file.write_bytes(damage(source.read_bytes(), chooser))
    return Case(f"{kind} {name}", [str(file)], call=load_program)


def find_texts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the place of each text of a JSON value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        if isinstance(part, str):
            yield value, key
        yield from find_texts(part)


def load_program(words: list[str]) -> None:
    """Load an exported program as a device does."""
    from ngbkit.workloads import module

    module._load_program(Path(words[0]))


GENERATORS: dict[str, Generator] = {
    "sites": make_site,
    "arrays": make_array,
    "pictures": make_picture,
    "programs": make_program,
}


def try_cases(name: str, base: Path, seed: int, count: int) -> tuple[dict[str, int], list[str]]:
    """Try inputs of a generator; return the numbers of problems, and a line for each input that has some."""
    counts, lines, chooser = Counter[str](), [], random.Random(seed)
    process = converter._start()
    converter._start = lambda: process  # forks share it, one after another: each would start it anew
    for number in range(count):
        with tempfile.TemporaryDirectory(dir=base) as folder, tempfile.TemporaryDirectory(dir=base) as scratch:
            case = GENERATORS[name](base, Path(folder), chooser)
            problems, text = try_case(case, Path(scratch))
        counts.update(problems)
        if problems:
            last = text.strip().splitlines()[-1:] or [""]
            lines.append(f"  {name} {seed}:{number} {sorted(problems)} {case.label!r}: {last[0][:200]!r}\n")
    return dict(counts), lines


def try_case(case: Case, base: Path) -> tuple[set[str], str]:
    """Run a command in a fork of this process; return what is wrong, and its output."""
    log, home = base / "log", base / "home"
    (home / "tmp").mkdir(parents=True)
    pid = os.fork()
    if pid == 0:
        code = 70
        with contextlib.suppress(BaseException):
            os.setsid()
            descriptor = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            for number in (1, 2):
                os.dup2(descriptor, number)
            for stream in (sys.stdout, sys.stderr):
                cast(io.TextIOWrapper, stream).reconfigure(encoding="utf-8", errors="replace")
            os.environ |= {"HOME": str(home), "TMPDIR": str(home / "tmp"), options.STATE_DIR: str(base / "empty")}
            tempfile.tempdir = None
            os.chdir(home)
            try:
                code = case.call(case.words) or 0
            except SystemExit as error:
                code = int(error.code or 0)
            except NgbkitError as error:
                code = 2
                print(strip_controls(str(error)))
            except BaseException:  # noqa: BLE001  what a shell would show
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    status = wait(pid)
    text = log.read_bytes().decode(errors="replace")
    problems = set()
    if status is None:
        problems.add("hung")
    elif os.WIFSIGNALED(status):
        problems.add("killed")
    elif case.is_altered and os.WEXITSTATUS(status) == 0 and "altered" not in text:
        problems.add("silent")
    problems |= {"traceback"} if "Traceback (most" in text else set()
    problems |= {"escape"} if CONTROL.search(text) else set()
    problems |= {"ran"} if (home / "canary").exists() else set()
    problems |= {"left"} if any((home / "tmp").iterdir()) else set()
    return problems, text


def wait(pid: int) -> int | None:
    """Wait for a process; None if it had to be killed."""
    for _ in range(LIMIT_S * 50):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def build_base(base: Path) -> None:
    """Build a site, networks and an exported program."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import nbformat
    import onnx
    import torch
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
    from onnx import parser

    from ngbkit.publish import publish

    text = '<ir_version: 8, opset_import: ["": 17]> graph (float[batch, 16] x) => (float[batch, 16] y) { y = Relu(x) }'
    onnx.save(parser.parse_model(text), base / "mlp.onnx")
    onnx.save(parser.parse_model(text.replace("batch, 16", "batch, 3, 64, 64")), base / "pictures.onnx")
    sizes = ({0: torch.export.Dim("size")},)
    program = torch.export.export(torch.nn.Linear(16, 2), (torch.ones(2, 16),), dynamic_shapes=sizes)
    program.example_inputs = None
    torch.export.save(program, base / "program.pt2")
    logging.disable()  # torch logs its own tracebacks
    # Ghostscript, which Pillow starts for EPS
    (base / "bin").mkdir()
    (base / "bin" / "gs").write_text('#!/bin/sh\ntouch "$HOME/canary"\n')
    (base / "bin" / "gs").chmod(0o700)
    os.environ["PATH"] = f"{base / 'bin'}{os.pathsep}{os.environ['PATH']}"
    notebooks = base / "notebooks"
    (notebooks / "data").mkdir(parents=True)
    shutil.copy(base / "mlp.onnx", notebooks / "data")
    sweep = "-c identity,onnxruntime -b 1,2 -r 5 --threads 1"
    cells = [new_markdown_cell("# A study"), new_code_cell(f"%load_ext ngbkit\n%ngbench data/mlp.onnx {sweep} -o ds")]
    cells += [new_code_cell("ds.ngb.plot.throughput()"), new_code_cell("ds")]
    nbformat.write(new_notebook(cells=cells), notebooks / "01-study.ipynb")
    os.environ[options.STATE_DIR] = str(base / "state")
    publish(notebooks, base / "site", measure="missing")
    from ngbkit.cluster import engines

    engines.close()


def main() -> int:
    """Try the inputs, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(GENERATORS))
    args = parser.parse_args()
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        base = Path(folder)
        build_base(base)
        print(f"{'':10}{'inputs':>8}", *(f"{kind:>10}" for kind in KINDS), f"{'seconds':>8}", flush=True)
        for name in args.only.split(","):
            start, count = time.perf_counter(), -(-args.count // len(GENERATORS) // WORKERS)
            slots = [(name, base, args.seed * WORKERS + slot, count) for slot in range(WORKERS)]
            with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
                answers = pool.starmap(try_cases, slots)
            counts = sum((Counter(each[0]) for each in answers), Counter[str]())
            total.update(counts)
            cells = [f"{counts[kind]:>10}" for kind in KINDS]
            print(f"{name:10}{WORKERS * count:>8}", *cells, f"{time.perf_counter() - start:>8.0f}", flush=True)
            print(*(line for _, lines in answers for line in lines), sep="\n", end="", flush=True)
    return int(bool(total))


if __name__ == "__main__":
    sys.exit(main())
