"""The devices file: its search, its devices, and the commands that accept their labels."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from devicefiles import ATTACH, ORIN, SLURM, SSH, make_project, write

from ngbkit.cluster import devices, keys
from ngbkit.cluster.devices import Device
from ngbkit.commands import arguments
from ngbkit.commands.devices import list_devices
from ngbkit.commands.parser import Parser, parse
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.notebook import completion

CPU = Device(label="cpu", launch="local")
NAMES = {field.name for field in fields(Device)} - {"label"}

project = pytest.fixture(autouse=True)(make_project)


def test_without_a_file_this_machine_is_the_only_device() -> None:
    """The first run needs no file."""
    assert (None, {"cpu": CPU}) == (devices.find(), devices.load())


def test_every_key_is_parsed(project: Path) -> None:
    """Each becomes a field of the device."""
    text = """
    [orin.env]
    OMP_PROC_BIND = "true"
    GRUSS = "grüß dich"
    [orin]
    launch = "ssh"
    host = "me@orin"
    python = "~/env/bin/python"
    setup = '''
    module load cuda
    export A=1'''
    network = "direct"
    address = "192.168.55.100"
    cores = "8, 0-3,2"
    threads = 4
    accelerator = "cuda:1"
    state_dir = "~/ngbkit"
    [slurm-1]
    launch = "slurm"
    address = "head.cluster"
    sbatch = ["--partition=gpu", "-t1"]
    [_mine]
    launch = "attach"
    cluster = "some-id"
    target = 0
    [cpu]
    launch = "local"
    cores = [1, 0]
    """
    write(project / "devices.toml", text)
    orin = Device(
        label="orin",
        launch="ssh",
        host="me@orin",
        python="~/env/bin/python",
        setup="    module load cuda\n    export A=1",
        network="direct",
        address="192.168.55.100",
        cores=(0, 1, 2, 3, 8),
        threads=4,
        env={"OMP_PROC_BIND": "true", "GRUSS": "grüß dich"},
        accelerator="cuda:1",
        state_dir="~/ngbkit",
    )
    slurm = Device(label="slurm-1", launch="slurm", address="head.cluster", sbatch=("--partition=gpu", "-t1"))
    attached = Device(label="_mine", launch="attach", cluster="some-id", target=0)
    cpu = Device(label="cpu", launch="local", cores=(0, 1))

    assert {"cpu": cpu, "orin": orin, "slurm-1": slurm, "_mine": attached} == devices.load()


def test_a_file_adds_devices_to_this_machine(project: Path) -> None:
    """Notebooks that measure on this machine still work."""
    write(project / "devices.toml")

    assert {"cpu": CPU, "orin": Device(label="orin", launch="ssh", host="orin")} == devices.load()


def test_the_nearest_file_wins(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder's, then its parents' up to the home folder, then that of the configuration folder."""
    folders = [
        project,
        project.parent,
        tmp_path,
        tmp_path / "chosen",
        tmp_path / "xdg/ngbkit",
        tmp_path / ".config/ngbkit",
    ]
    files = [write(folder / "devices.toml") for folder in folders]
    write(tmp_path.parent / "devices.toml")
    monkeypatch.setenv("NGBKIT_CONFIG_DIR", "~/chosen")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    paths = []
    for file, forget in zip(files, [*["NONE"] * 3, "NGBKIT_CONFIG_DIR", "XDG_CONFIG_HOME", "NONE"], strict=True):
        paths.append(devices.find())
        file.unlink()
        monkeypatch.delenv(forget, raising=False)
    (tmp_path.parent / "devices.toml").unlink()

    assert files == paths


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_the_search_ends_at_a_repository(project: Path, make: Any) -> None:
    """A worktree has a file in the place of the folder .git."""
    make(project.parent / ".git")
    write(project.parent.parent / "devices.toml")
    none = devices.find()
    file = write(project.parent / "devices.toml")

    assert (None, file) == (none, devices.find())


def test_the_search_ends_at_a_link_to_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder has its resolved path."""
    real, link = tmp_path / "real", tmp_path / "link"
    (real / "project").mkdir(parents=True)
    link.symlink_to(real)
    write(tmp_path / "devices.toml")
    monkeypatch.setenv("HOME", str(link))
    monkeypatch.chdir(link / "project")

    assert devices.find() is None


def test_a_removed_current_folder_is_skipped(project: Path, tmp_path: Path) -> None:
    """The file of the configuration folder is found."""
    file = write(tmp_path / ".config/ngbkit/devices.toml")
    project.rmdir()

    assert file == devices.find()


def test_a_link_to_a_file_is_followed(project: Path, tmp_path: Path) -> None:
    """A broken link is an error."""
    (project / "devices.toml").symlink_to(write(tmp_path / "elsewhere" / "my.toml"))
    labels = list(devices.load())
    (tmp_path / "elsewhere" / "my.toml").unlink()
    with pytest.raises(UsageError, match=r"cannot read the devices file .*devices.toml: No such file"):
        devices.load()

    assert ["cpu", "orin"] == labels


def test_the_file_can_be_chosen(tmp_path: Path) -> None:
    """The user chooses the devices file, even with a path relative to the home folder."""
    write(tmp_path / "my.toml")

    assert ["cpu", "orin"] == list(devices.load(Path("~/my.toml")))
    with pytest.raises(UsageError, match=r"cannot read .*your.toml: No such file.*`ngbkit devices init`"):
        devices.load(tmp_path / "your.toml")
    with pytest.raises(UsageError, match=r"cannot read .*: Is a directory"):
        devices.load(tmp_path)


@pytest.mark.parametrize(
    ("mode", "is_valid"), [(0o644, True), (0o400, True), (0o620, False), (0o602, False), (0o666, False)]
)
def test_a_file_that_others_can_write_is_refused(project: Path, mode: int, is_valid: bool) -> None:
    """ngbkit would run its lines as the user."""
    file = write(project / "devices.toml")
    file.chmod(mode)
    if is_valid:
        assert ["cpu", "orin"] == list(devices.load())
        return
    with pytest.raises(
        UsageError, match=rf"mode {mode:04o}\), and ngbkit would run its `setup` lines: chmod go-w {file}"
    ):
        devices.load()


def test_a_file_of_another_user_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone can put one in a shared folder, such as a parent of the current one."""
    file = write(project / "devices.toml")
    if os.getuid() == 0:
        os.chown(file, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)

    with pytest.raises(UsageError, match="belongs to another user"):
        devices.load()


def test_files_of_other_systems_are_valid(project: Path) -> None:
    """A byte-order mark and carriage returns are ignored."""
    write(project / "devices.toml", b"\xef\xbb\xbf" + ORIN.replace("\n", "\r\n").encode())

    assert "orin" == devices.load()["orin"].host


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ("", ""),
        ("an-id", "an-id"),
        ("~/c.json", "{home}/c.json"),
        ("./c.json", "{file}/c.json"),
        ("/etc/c.json", "/etc/c.json"),
    ],
)
def test_a_connection_file_is_relative_to_the_devices_file(
    project: Path, tmp_path: Path, cluster: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection file is relative to the devices file or the home folder; an id is unchanged."""
    write(project.parent / "devices.toml", f'[a]\n{ATTACH}cluster = "{cluster}"')

    assert expected.format(home=tmp_path, file=project.parent) == devices.load()["a"].cluster


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"CUDA_VISIBLE_DEVICES": "-1"}),
        ({"accelerator": "cuda:3", "env": {"A": "1"}}, {"CUDA_VISIBLE_DEVICES": "3", "A": "1"}),
        ({"accelerator": "cuda:0", "env": {"CUDA_VISIBLE_DEVICES": "GPU-8"}}, {"CUDA_VISIBLE_DEVICES": "GPU-8"}),
    ],
)
def test_an_engine_sees_the_accelerator_of_its_device(fields: dict[str, Any], expected: dict[str, str]) -> None:
    """An engine sees only the accelerator of its device, unless the file sets the variables."""
    numbered = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert numbered | expected == Device(label="x", launch="ssh", **fields).environment()


def test_devices_have_descriptions(project: Path) -> None:
    """Each device has a description for lists and errors."""
    text = (
        f'[orin]\n{SSH}accelerator = "cuda:0"\n[gpu]\n{SLURM}sbatch = ["--partition=gpu"]\nhost = "login"\n'
        f'[c]\nlaunch = "local"\ncores = "0-3,8"\n[g]\nlaunch = "local"\naccelerator = "cuda:1"\n'
        f'[d]\n{ATTACH}[e]\n{ATTACH}cluster = "x"\ntarget = 2\n'
    )
    write(project / "devices.toml", text)

    assert {
        "cpu": "this machine's CPU",
        "orin": "ssh host orin, cuda:0",
        "gpu": "Slurm host login, --partition=gpu",
        "c": "this machine's CPU, cores 0-3,8",
        "g": "this machine's cuda:1",
        "d": "an engine of the default ipyparallel cluster",
        "e": "engine 2 of the ipyparallel cluster x",
    } == {label: device.description for label, device in devices.load().items()}


def test_the_error_for_an_unknown_device_names_the_file(project: Path) -> None:
    """The error of an unknown device has the path of the devices file, or how to create one."""
    with pytest.raises(UnknownNameError, match=r"Without a devices file.*`ngbkit devices init`"):
        devices.check(["cpu", "orin"])
    file = write(project / "devices.toml")
    devices.check(["cpu", "orin"])
    with pytest.raises(
        UnknownNameError, match=re.escape(f"unknown device 'orn'. Did you mean orin? The devices are in {file}.")
    ):
        devices.check(["orn"])


def test_a_sweep_runs_on_the_devices_of_the_file(project: Path) -> None:
    """The command line names their labels."""
    write(project / "devices.toml")
    args = parse(_parser(), ["resnet18", "-d", "orin,cpu"])

    assert ("orin", "cpu") == arguments.to_sweep(args).devices


def _parser() -> Parser:
    parser = Parser(prog="test")
    for argument in (arguments.WORKLOADS, *arguments.SWEEP):
        parser.add_argument(*argument.flags, **argument.keywords)
    return parser


def test_devices_are_listed_with_their_launchers(project: Path) -> None:
    """The cores and the chip of other machines are unknown before a run."""
    write(project / "devices.toml", f'{ORIN}cores = "0-5"\n[two]\nlaunch = "local"\ncores = [0, 1]')
    cpu, orin, two = list_devices()

    assert ("cpu", "local", None, "cpu") == tuple(cpu[name] for name in ("device", "launch", "host", "accelerator"))
    assert ("orin", "ssh", "orin", 6, None) == tuple(
        orin[name] for name in ("device", "launch", "host", "cores", "chip")
    )
    assert (2, cpu["chip"]) == (two["cores"], two["chip"])


@pytest.mark.parametrize(
    ("line", "candidates"),
    [("", ["list", "init", "check"]), ("ch", ["check"]), ("check ", ["cpu", "orin"]), ("check cpu,o", ["orin"])],
)
def test_the_words_of_the_magic_complete(project: Path, line: str, candidates: list[str]) -> None:
    """Tab completes the actions of the magic and the labels of the file."""
    write(project / "devices.toml")

    assert candidates == completion.complete("ngdevices", line, {})[1]
    assert ["orin"] == completion.complete("ngbench", "resnet18 -d or", {})[1]


def test_nothing_completes_from_an_invalid_file(project: Path) -> None:
    """A completion reports no errors."""
    write(project / "devices.toml", "nonsense")

    assert [] == completion.complete("ngbench", "resnet18 -d ", {})[1]


def test_the_first_file_is_valid(project: Path) -> None:
    """The first devices file is valid, and its examples show each key and each launcher."""
    file = devices.init(project / "devices.toml")
    initial = devices.load()
    examples = re.sub(r"^#(?=\S)", "", devices.TEMPLATE, flags=re.MULTILINE)
    write(file, examples)
    configured = devices.load()

    assert {"cpu": CPU} == initial
    assert set(keys.BUILT_IN) == {device.launch for device in configured.values()}
    assert NAMES == {name for name in NAMES if re.search(rf"^{name} = ", examples, re.MULTILINE)}


def test_the_first_file_is_private(project: Path) -> None:
    """The first devices file is private whatever the umask, and init never replaces a file."""
    umask = os.umask(0)
    try:
        file = devices.init(project / "devices.toml")
    finally:
        os.umask(umask)
    mode = stat.S_IMODE(file.stat().st_mode)
    write(file)
    (project / "link.toml").symlink_to("nowhere")

    assert 0o600 == mode
    for existing in (file, project / "link.toml"):
        with pytest.raises(UsageError, match="exists already"):
            devices.init(existing)
    assert ORIN == file.read_text()


def test_a_failed_init_is_reported(project: Path) -> None:
    """The error of a failed init has the reason."""
    with pytest.raises(UsageError, match=r"cannot write .*: Not a directory"):
        devices.init(write(project / "file") / "devices.toml")
