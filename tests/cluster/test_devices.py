"""The devices file: where it is found, what its devices are, and where they can be named."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from devicefiles import ATTACH, ORIN, SLURM, SSH, make_project, write

from ngbkit.cluster import devices, keys
from ngbkit.cluster.devices import Device
from ngbkit.commands import arguments, listing
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.notebook import completion

CPU = Device(label="cpu", launch="local")

project = pytest.fixture(autouse=True)(make_project)


def test_without_a_file_there_is_this_machine() -> None:
    """So that the first run needs no file."""
    assert (None, {"cpu": CPU}) == (devices.find(), devices.load())


def test_every_key_is_read(project: Path) -> None:
    """Each as the device has it from then on."""
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
    mine = Device(label="_mine", launch="attach", cluster="some-id", target=0)
    cpu = Device(label="cpu", launch="local", cores=(0, 1))

    assert {"cpu": cpu, "orin": orin, "slurm-1": slurm, "_mine": mine} == devices.load()


def test_this_machine_is_there_beside_those_of_a_file(project: Path) -> None:
    """Every notebook that measures on it goes on working."""
    write(project / "devices.toml")

    assert {"cpu": CPU, "orin": Device(label="orin", launch="ssh", host="orin")} == devices.load()


def test_the_nearest_file_holds(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder's, then its parents' up to the home folder, then that of the configuration folder."""
    places = [
        project,
        project.parent,
        tmp_path,
        tmp_path / "chosen",
        tmp_path / "xdg/ngbkit",
        tmp_path / ".config/ngbkit",
    ]
    files = [write(folder / "devices.toml") for folder in places]
    write(tmp_path.parent / "devices.toml")
    monkeypatch.setenv("NGBKIT_CONFIG_DIR", "~/chosen")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    found = []
    for file, forget in zip(files, [*["NONE"] * 3, "NGBKIT_CONFIG_DIR", "XDG_CONFIG_HOME", "NONE"], strict=True):
        found.append(devices.find())
        file.unlink()
        monkeypatch.delenv(forget, raising=False)
    (tmp_path.parent / "devices.toml").unlink()

    assert files == found


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_no_file_is_looked_for_above_a_repository(project: Path, make: Any) -> None:
    """Whose own file holds; a worktree has a file in the place of the folder .git."""
    make(project.parent / ".git")
    write(project.parent.parent / "devices.toml")
    none = devices.find()
    file = write(project.parent / "devices.toml")

    assert (None, file) == (none, devices.find())


def test_a_link_to_the_home_folder_ends_the_search_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is known by its real name."""
    real, link = tmp_path / "real", tmp_path / "link"
    (real / "project").mkdir(parents=True)
    link.symlink_to(real)
    write(tmp_path / "devices.toml")
    monkeypatch.setenv("HOME", str(link))
    monkeypatch.chdir(link / "project")

    assert devices.find() is None


def test_a_current_folder_that_was_removed_has_no_file(project: Path, tmp_path: Path) -> None:
    """The user's own is found all the same."""
    file = write(tmp_path / ".config/ngbkit/devices.toml")
    project.rmdir()

    assert file == devices.find()


def test_a_link_to_a_file_is_followed(project: Path, tmp_path: Path) -> None:
    """And refused where it leads nowhere, rather than passed over."""
    (project / "devices.toml").symlink_to(write(tmp_path / "elsewhere" / "my.toml"))
    found = list(devices.load())
    (tmp_path / "elsewhere" / "my.toml").unlink()
    with pytest.raises(UsageError, match=r"devices.toml cannot be read: No such file"):
        devices.load()

    assert ["cpu", "orin"] == found


def test_the_file_can_be_named(tmp_path: Path) -> None:
    """Also one in the home folder."""
    write(tmp_path / "my.toml")

    assert ["cpu", "orin"] == list(devices.load(Path("~/my.toml")))
    with pytest.raises(UsageError, match=r"your.toml cannot be read: No such file.*`ngbkit devices init`"):
        devices.load(tmp_path / "your.toml")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        devices.load(tmp_path)


@pytest.mark.parametrize(
    ("mode", "is_fine"), [(0o644, True), (0o400, True), (0o620, False), (0o602, False), (0o666, False)]
)
def test_a_file_that_others_can_write_is_refused(project: Path, mode: int, is_fine: bool) -> None:
    """Its lines would be run as the user."""
    file = write(project / "devices.toml")
    file.chmod(mode)
    if is_fine:
        assert ["cpu", "orin"] == list(devices.load())
        return
    with pytest.raises(UsageError, match=rf"mode {mode:04o}\), and its `setup` lines would be run: chmod go-w {file}"):
        devices.load()


def test_a_file_of_another_user_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone can leave one in a folder that all can write, such as a parent of the current one."""
    file = write(project / "devices.toml")
    if os.getuid() == 0:
        os.chown(file, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)

    with pytest.raises(UsageError, match="belongs to another user"):
        devices.load()


def test_editors_of_other_systems_will_do(project: Path) -> None:
    """A byte-order mark and carriage returns mean nothing."""
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
def test_a_connection_file_is_found_from_the_file_that_names_it(
    project: Path, tmp_path: Path, cluster: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And from the home folder; an id stays what it is."""
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
    """And no other, unless the file says so itself."""
    numbered = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert numbered | expected == Device(label="x", launch="ssh", **fields).environment()


def test_devices_are_known_by_what_they_are(project: Path) -> None:
    """In words, for lists and errors."""
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
    } == {label: device.what for label, device in devices.load().items()}


def test_an_unknown_device_is_told_where_they_are_described(project: Path) -> None:
    """The file, or how to get one."""
    with pytest.raises(UnknownNameError, match=r"Without a devices file.*`ngbkit devices init`"):
        devices.check(["cpu", "orin"])
    file = write(project / "devices.toml")
    devices.check(["cpu", "orin"])
    with pytest.raises(
        UnknownNameError, match=re.escape(f"unknown device 'orn'. Did you mean orin? They are those of {file}.")
    ):
        devices.check(["orn"])


def test_a_sweep_can_be_asked_for_on_the_devices_of_the_file(project: Path) -> None:
    """By their labels, on a command line."""
    write(project / "devices.toml")
    asked = arguments.parse(_parser(), ["resnet18", "-d", "orin,cpu"])

    assert ("orin", "cpu") == arguments.to_sweep(asked).devices


def _parser() -> arguments.Parser:
    parser = arguments.Parser(prog="test")
    for argument in (arguments.WORKLOADS, *arguments.SWEEP):
        parser.add_argument(*argument.flags, **argument.keywords)
    return parser


def test_devices_are_listed_with_how_they_are_reached(project: Path) -> None:
    """The cores and the chip of other machines are not known before they are asked."""
    write(project / "devices.toml", f'{ORIN}cores = "0-5"\n[two]\nlaunch = "local"\ncores = [0, 1]')
    here, orin, two = listing.list_devices()

    assert ("cpu", "local", None, "cpu") == tuple(here[name] for name in ("device", "launch", "host", "accelerator"))
    assert ("orin", "ssh", "orin", 6, None) == tuple(
        orin[name] for name in ("device", "launch", "host", "cores", "chip")
    )
    assert (2, here["chip"]) == (two["cores"], two["chip"])


@pytest.mark.parametrize(
    ("line", "offered"),
    [("", ["list", "init", "check"]), ("ch", ["check"]), ("check ", ["cpu", "orin"]), ("check cpu,o", ["orin"])],
)
def test_the_words_of_the_magic_complete(project: Path, line: str, offered: list[str]) -> None:
    """What it does, and the labels of the file."""
    write(project / "devices.toml")

    assert offered == completion.complete("ngdevices", line, {})[1]
    assert ["orin"] == completion.complete("ngbench", "resnet18 -d or", {})[1]


def test_nothing_completes_from_a_file_that_is_not_valid(project: Path) -> None:
    """Tab is not where that is told."""
    write(project / "devices.toml", "nonsense")

    assert [] == completion.complete("ngbench", "resnet18 -d ", {})[1]


def test_the_file_to_begin_with_is_valid(project: Path) -> None:
    """As it is, and with every example taken in: then it shows each key and each launcher."""
    file = devices.init(project / "devices.toml")
    plain = devices.load()
    examples = re.sub(r"^#(?=\S)", "", devices.TEMPLATE, flags=re.MULTILINE)
    write(file, examples)
    found = devices.load()

    assert {"cpu": CPU} == plain
    assert set(keys.BUILT_IN) == {device.launch for device in found.values()}
    assert set(keys.KEYS) == {name for name in keys.KEYS if re.search(rf"^{name} = ", examples, re.MULTILINE)}


def test_the_file_to_begin_with_is_the_users_alone(project: Path) -> None:
    """Whatever the umask; and what is there already is left as it is."""
    before = os.umask(0)
    try:
        file = devices.init(project / "devices.toml")
    finally:
        os.umask(before)
    mode = stat.S_IMODE(file.stat().st_mode)
    write(file)
    (project / "link.toml").symlink_to("nowhere")

    assert 0o600 == mode
    for there in (file, project / "link.toml"):
        with pytest.raises(UsageError, match="exists, and is left as it is"):
            devices.init(there)
    assert ORIN == file.read_text()


def test_a_file_that_cannot_be_written_is_told(project: Path) -> None:
    """With the reason."""
    with pytest.raises(UsageError, match="cannot be written: Not a directory"):
        devices.init(write(project / "file") / "devices.toml")
