"""Inputs of others, altered or built to harm: a generator for each kind, without an end."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import cli, options

FOREIGN = (
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x07",
    "\x7f",
    "\x9b31m",
    "\u202e",
    "\ufffe",
    "a\nb",
    "<script>",
    "=1+1",
    "..",
)
NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1e12", "1e400", "1.5", "0x10", "1_0", "", " ", "9" * 5000, "\x1b[2J", "٣")
NESTED = "[" * 100_000


@dataclass(frozen=True)
class Case:
    """A command on hostile input, or a call on the same words."""

    label: str
    words: list[str]
    # Whether it must be refused, or said to be altered; others may succeed.
    is_altered: bool = False
    folders: list[Path] = field(default_factory=list)
    run_id: str = ""
    call: Callable[[list[str]], Any] = cli.main
    # Returns whether the input has what it had before it was altered, such as after a bit that nothing reads.
    is_same: Callable[[], bool] = lambda: False


Generator = Callable[[Path, random.Random], Iterator[Case]]


def damage(content: bytes, chooser: random.Random) -> tuple[str, bytes]:
    """Flip a bit of a content, cut it, insert bytes, or append some."""
    kind = chooser.choice(["flip", "flip", "flip", "cut", "insert", "append"])
    place = chooser.randrange(max(len(content), 1))
    if kind == "flip" and content:
        changed = bytearray(content)
        changed[place] ^= 1 << chooser.randrange(8)
        return f"{kind} {place}", bytes(changed)
    if kind == "cut":
        return f"{kind} {place}", content[:place]
    extra = chooser.randbytes(chooser.randrange(1, 40))
    return f"{kind} {place}", content + extra if kind == "append" else content[:place] + extra + content[place:]


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


def make_sites(base: Path, chooser: random.Random) -> Iterator[Case]:
    """Yield altered sites and archives, to be verified and replayed."""
    site = base / "site"
    names = sorted(path for path in site.rglob("*") if path.is_file())
    while True:
        folder = Path(tempfile.mkdtemp(dir=base))
        copy = Path(shutil.copytree(site, folder / "site", symlinks=True))
        kind = chooser.choice(["file", "file", "manifest", "stranger", "archive", "member", "replay"])
        words, is_altered, label = ["verify", str(copy)], True, ""
        if kind in ("file", "replay"):
            path = copy / chooser.choice(names).relative_to(site)
            label, content = damage(path.read_bytes(), chooser)
            is_altered = content != path.read_bytes()
            path.write_bytes(content)
            label = f"{path.relative_to(copy)} {label}"
            if kind == "replay":
                words = ["replay", str(copy), "-o", str(folder / "out")]
        elif kind == "manifest":
            manifest = copy / "ngbkit-site.json"
            changed = alter_json(json.loads(manifest.read_text()), chooser)
            manifest.write_text(json.dumps(changed))
            is_altered = False  # whoever writes it anew may state another title
        elif kind == "stranger":
            label = chooser.choice(["link", "pipe", "empty", "extra"])
            place = copy / chooser.choice(["x", "notebooks/x", "notebooks/data/x.py", "_static/x"])
            place.parent.mkdir(parents=True, exist_ok=True)
            if label == "link":
                place.symlink_to("/etc")
            elif label == "pipe":
                os.mkfifo(place)
            else:
                place.mkdir() if label == "empty" else place.write_text("x")
        elif kind == "archive":
            label, content = damage((copy / "archive.zip").read_bytes(), chooser)
            (copy / "archive.zip").write_bytes(content)
        else:
            name = chooser.choice(["../x", "/tmp/x", "a/../../x", "notebooks/\x1b[2Jx.ipynb", "a\\..\\x", "x" * 300])
            with zipfile.ZipFile(copy / "archive.zip", "a") as archive, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                archive.writestr(zipfile.ZipInfo(name), "x")
            words = [chooser.choice(["verify", "replay"]), str(copy / "archive.zip")]
            words += ["-o", str(folder / "out")] if words[0] == "replay" else []
        yield Case(f"{kind} {label}", words, is_altered, [folder])


def make_datasets(base: Path, chooser: random.Random) -> Iterator[Case]:
    """Yield datasets with damaged bytes, and with foreign labels, to be printed."""
    import xarray as xr

    from ngbkit.dataset import storage

    source = base / "run.nc"
    data = storage.load(source)
    while True:
        folder = Path(tempfile.mkdtemp(dir=base))
        file = folder / "other.nc"
        is_altered = chooser.random() < 0.6
        if is_altered:
            label, content = damage(source.read_bytes(), chooser)
            file.write_bytes(content)
        else:
            assert isinstance(data, xr.Dataset)
            label = chooser.choice([text for text in FOREIGN if text.isprintable() or "\x00" not in text])
            name = chooser.choice(["workload", "compiler", "device"])
            labels = [f"{value}{label}" for value in data[name].values]
            changed = data.assign_coords({name: np.array(labels, dtype=object)})
            storage.save(changed.assign_attrs(note=label, run_id=f"x{label}"), file)
        words = chooser.choice([["show", str(file), *options] for options in ([], ["--rows", "trials"], ["--json"])])
        yield Case(repr(label), words, is_altered, [folder], is_same=partial(_is_same, data, file))


def make_arrays(base: Path, chooser: random.Random) -> Iterator[Case]:
    """Yield values of inputs whose headers, sizes or kinds are hostile."""
    shapes = (
        "(10000000000,)",
        "(10**30,)",
        f"({10**30},)",
        "(-1,)",
        "(1,)*100",
        "()",
        "(0,)",
        "(1e9,)",
        NESTED,
        "(2, 16)",
    )
    while True:
        folder = Path(tempfile.mkdtemp(dir=base))
        file = folder / chooser.choice(["x.npz", "x.npy", "x.npz", "input_0.pb"])
        kind = chooser.choice(["header", "bomb", "pipe", "folder", "noise", "damaged", "object"])
        if kind == "header":
            shape = chooser.choice(shapes)
            text = f"{{'descr': '<f{chooser.choice('48')}', 'fortran_order': False, 'shape': {shape}, }}\n"
            body = b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text.encode() + bytes(64)
            write_member(file, body)
        elif kind == "bomb":
            header = io.BytesIO()
            np.lib.format.write_array_header_2_0(
                header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 27, 2)}
            )
            with (
                zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
                archive.open("x.npy", "w", force_zip64=True) as member,
            ):
                member.write(header.getvalue())
                member.write(bytes(1 << 24))
        elif kind == "pipe":
            os.mkfifo(file)
        elif kind == "folder":
            file.mkdir()
        elif kind == "noise":
            file.write_bytes(chooser.randbytes(chooser.randrange(2000)))
        else:
            content = io.BytesIO()
            values = np.ones((2, 16), np.float32) if kind == "damaged" else np.array([{}], dtype=object)
            np.save(content, values, allow_pickle=True)
            write_member(file, damage(content.getvalue(), chooser)[1] if kind == "damaged" else content.getvalue())
        yield Case(
            f"{kind} {file.name}", ["inputs", str(base / "mlp.onnx"), "--inputs", f"mlp={file}"], False, [folder]
        )


def write_member(file: Path, body: bytes) -> None:
    """Write an array as it is, or into a zip."""
    if file.suffix != ".npz":
        file.write_bytes(body)
        return
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", body)


def make_options(base: Path, chooser: random.Random) -> Iterator[Case]:
    """Yield commands with a hostile value of one of their options, which reach no measurement."""
    parser = cli.build_parser(cli._load([]))
    commands = next(action.choices for action in parser._actions if isinstance(action.choices, dict))
    source = {"show": str(base / "run.nc"), "choose": str(base / "run.nc"), "compare": str(base / "run.nc")}
    while True:
        name = chooser.choice([name for name in commands if name not in ("deploy", "undeploy", "demo", "selfcheck")])
        actions = [each for each in commands[name]._actions if each.option_strings and each.nargs != 0]
        if not actions:
            continue
        option = chooser.choice(chooser.choice(actions).option_strings)
        value = chooser.choice([*NUMBERS, *FOREIGN])
        words = [name, *([source[name]] if name in source else ["nothing.onnx"]), f"{option}={value}"]
        yield Case(f"{name} {option} {value[:20]!r}", words if option[:2] == "--" else [*words[:-1], option, value])


def make_states(base: Path, chooser: random.Random) -> Iterator[Case]:
    """Yield commands on a state folder in which one file is damaged, or hostile JSON."""
    state = base / "state"
    (run,) = (path for path in (state / options.LAYOUT.runs).iterdir() if path.is_dir())
    while True:
        folder = Path(tempfile.mkdtemp(dir=base))
        copy = Path(shutil.copytree(state, folder / "state"))
        path = chooser.choice([each for each in sorted(copy.rglob("*")) if each.is_file() and each.name != "key"])
        if path.suffix == ".json" and chooser.random() < 0.7:
            kind = "json"
            hostile = ["", NESTED, "{" * 10, "null", "[]", "1" * 5000, '{"a": NaN}', "\ufeff{}", '"\\ud800"']
            changed = json.dumps(alter_json(json.loads(path.read_text()), chooser))
            path.write_text(chooser.choice([*hostile, *[changed] * 5]))
        else:
            kind, content = damage(path.read_bytes(), chooser)
            path.write_bytes(content)
        words = chooser.choice(
            [["runs"], ["cache"], ["show", run.name], ["runs", "--failures", run.name], ["compilers"]]
        )
        label = f"{path.relative_to(copy)} {kind} {' '.join(words)}"
        yield Case(label, words, False, [folder], run.name if path.name != "journal.sqlite" else "")


def make_pictures(base: Path, chooser: random.Random) -> Iterator[Case]:
    """Yield folders of pictures that calibrate: damaged, of hostile sizes, or of a format that starts a program."""
    from PIL import Image

    pixels = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8))
    while True:
        folder = Path(tempfile.mkdtemp(dir=base))
        kind = chooser.choice(["damaged", "damaged", "damaged", "damaged", "size", "program", "pipe"])
        file, content = folder / "x.png", io.BytesIO()
        mode = chooser.choice(["RGB", "L", "P", "RGBA", "1"])
        if kind == "size":
            side = chooser.choice([1, 20_000, 120_000, 1_000_000])
            picture, form = Image.new("1", (side, 1) if chooser.random() < 0.5 else (1, side)), "PNG"
            picture.save(content, form)
            file.write_bytes(content.getvalue())
        elif kind == "pipe":
            os.mkfifo(file)
        else:
            form = "EPS" if kind == "program" else chooser.choice(["PNG", "JPEG", "BMP", "WEBP", "TIFF", "PPM"])
            picture = pixels if form in ("EPS", "JPEG", "PPM") else pixels.convert(mode)
            picture.save(content, form)
            file.write_bytes(content.getvalue() if kind == "program" else damage(content.getvalue(), chooser)[1])
        yield Case(
            f"{kind} {form if kind != 'pipe' else ''} {mode}", [str(folder)], folders=[folder], call=load_pictures
        )


def load_pictures(words: list[str]) -> None:
    """Load a folder of pictures for a network that takes them."""
    from ngbkit.workloads import onnx, pictures

    network = onnx.SOURCE.parse(str(Path(words[0]).parent / "pictures.onnx"))
    assert network is not None
    pictures.load(Path(words[0]), network)


def make_programs(base: Path, chooser: random.Random) -> Iterator[Case]:
    """Yield archives of exported programs: damaged, or with code in one of their texts."""
    source = base / "program.pt2"
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    touch = "__import__('pathlib').Path('canary').touch()"
    codes = (touch, f"a={touch}", f"a:{touch}", f"a):\n    {touch}\nif (1", f"Max('{touch}')", f"Symbol({touch!r})")
    while True:
        folder = Path(tempfile.mkdtemp(dir=base))
        file = folder / "x.pt2"
        kind = chooser.choice(["code", "code", "json", "damaged", "pickle"])
        name = chooser.choice([name for name in members if name.endswith(".json")])
        changed = dict(members)
        if kind == "code":
            text, texts = json.loads(members[name]), list[tuple[Any, Any]]()
            find_texts(text, texts)
            if texts:
                sizes = [text for text in texts if text[1] == "expr_str"]  # few of many, and evaluated
                place, key = chooser.choice(sizes if sizes and chooser.random() < 0.3 else texts)
                place[key] = chooser.choice(codes)
            changed[name] = json.dumps(text).encode()
        elif kind == "json":
            changed[name] = json.dumps(alter_json(json.loads(members[name]), chooser)).encode()
        elif kind == "pickle":
            harm = f"cbuiltins\nexec\n(V{touch}\ntR.".encode()
            changed[chooser.choice([*members, "net/x", "net/data/constants/custom_obj_0"])] = harm
        with zipfile.ZipFile(file, "w") as archive:
            for member, content in changed.items():
                archive.writestr(member, content)
        if kind == "damaged":
            file.write_bytes(damage(source.read_bytes(), chooser)[1])
        yield Case(f"{kind} {name}", [str(file)], folders=[folder], call=load_program)


def _is_same(data: Any, file: Path) -> bool:
    from ngbkit.dataset import storage

    return bool(data.identical(storage.load(file)))


def find_texts(value: Any, texts: list[tuple[Any, Any]]) -> None:
    """Append the place of each text of a JSON value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        if isinstance(part, str):
            texts.append((value, key))
        find_texts(part, texts)


def load_program(words: list[str]) -> None:
    """Load an exported program as a device does."""
    from ngbkit.workloads import module

    module._load_program(Path(words[0]))


GENERATORS: dict[str, tuple[Generator, float]] = {
    "sites": (make_sites, 0.12),
    "datasets": (make_datasets, 0.16),
    "arrays": (make_arrays, 0.16),
    "pictures": (make_pictures, 0.16),
    "programs": (make_programs, 0.12),
    "options": (make_options, 0.16),
    "state": (make_states, 0.12),
}
"""The generators, each with its share of the inputs."""
