"""What may stand in a table of the devices file, and what is said about what may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from devicefiles import ATTACH, ORIN, SLURM, SSH, make_project, write
from hypothesis import given
from hypothesis import strategies as st

from ngbkit.cluster import devices, keys
from ngbkit.cluster.devices import Device
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep.grid import Sweep

project = pytest.fixture(autouse=True)(make_project)


def refuse(text: str | bytes) -> str:
    """What is said about a file of that text, without its name."""
    file = write(Path("devices.toml"), text)
    with pytest.raises(UsageError) as caught:
        devices.load()
    assert str(file) in str(caught.value)
    return str(caught.value).replace(str(file.absolute()), "FILE")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "FILE describes no device: add a table such as [orin]"),
        ("# [orin]\n", "FILE describes no device"),
        ('[orin]\nlaunch = "ssh\n', "FILE is not TOML: "),
        ('[orin]\nlaunch = "ssh\n', "(at line 2, column 14)"),
        (f"{ORIN}{ORIN}", "twice (at line 4, column 6)"),
        (f'{ORIN}host = "other"', "Cannot overwrite a value (at end of document)"),
        ("a = " + "[" * 5000, "FILE is not TOML"),
        (f"[orin]\nthreads = {'9' * 5000}", "FILE is not TOML"),
        (b'[orin]\nhost = "\xff"', "FILE is not UTF-8 (byte 15)"),
        ('launch = "ssh"', "launch stands outside of any table: begin a device with a line such as [orin]"),
        (f"[{ORIN[:6]}]\n{SSH}", "orin stands outside of any table"),
        ('["my orin"]\nlaunch = "local"', '["my orin"] cannot be a label: valid are letters, digits'),
        ('["gerät"]\nlaunch = "local"', '["gerät"] cannot be a label'),
        ('["-rf"]\nlaunch = "local"', '["-rf"] cannot be a label'),
        ('["../up"]\nlaunch = "local"', '["../up"] cannot be a label'),
        ('[""]\nlaunch = "local"', '[""] cannot be a label'),
        (
            f"[orin.nano]\n{SSH}",
            """\n  [orin] holds a table 'nano', and only env is one. A label with a dot needs quotes: ["orin.nano"].""",
        ),
        ('[orin]\nlaunch = "ssh"', '[orin] host is missing, which launch = "ssh" needs; valid is what ssh calls'),
        ("[orin]", 'FILE: [orin] launch is missing; valid is "local", "ssh", "slurm" or "attach".'),
        ("[orin]\nlaunch = 3", '[orin] launch = 3 does not fit; valid is "local"'),
        ('[orin]\nlaunch = ["ssh"]', "[orin] launch = ['ssh'] does not fit"),
        ('[orin]\nlaunch = "shs"', "unknown launcher 'shs'. Did you mean ssh? It stands in [orin] of FILE."),
        ('[orin]\nlaunch = "SSH"', "unknown launcher 'SSH'. Did you mean ssh"),
        ('[here]\nlaunch = "local"\nhost = "x"', 'host does not go with launch = "local", only with "ssh" or "slurm"'),
        (f"[a]\n{ATTACH}cores = [0]", 'cores does not go with launch = "attach", only with "local" or "ssh"'),
        (f'[a]\n{ATTACH}setup = "x"', "setup does not go with"),
        (f"[a]\n{ATTACH}target = -1", "target = -1 does not fit; valid is the number of an engine"),
        ('[a]\nlaunch = "slurm"', 'address is missing, which launch = "slurm" needs; valid is the address'),
        (f'[a]\n{SLURM}sbatch = "--partition=gpu"', "sbatch = '--partition=gpu' does not fit; valid is a list of"),
        (f'[a]\n{SLURM}sbatch = ["partition=gpu"]', "sbatch = ['partition=gpu'] does not fit"),
        (f'[a]\n{SLURM}sbatch = ["-p", 3]', "sbatch = ['-p', 3] does not fit"),
        (f'[a]\n{SLURM}network = "direct"', 'network does not go with launch = "slurm", only with "ssh"'),
        (f'[a]\n{SSH}network = "direct"', 'address is missing, which network = "direct" needs'),
        (f'[a]\n{SSH}network = "vpn"', 'network = \'vpn\' does not fit; valid is "tunnel" or "direct"'),
        (f'[a]\n{SSH}address = "10.0.0.1"', 'address goes with network = "direct", and a tunnel needs none'),
        (f'[a]\n{SSH}network = "direct"\naddress = "0.0.0.0"', "address = '0.0.0.0' does not fit"),
        (f'[a]\n{SSH}network = "direct"\naddress = "--x"', "address = '--x' does not fit"),
        (f"[a]\n{SSH}threads = -1", "threads = -1 does not fit; valid is an integer of at least 1"),
        (f"[a]\n{SSH}threads = 0", "threads = 0 does not fit"),
        (f"[a]\n{SSH}threads = true", "threads = True does not fit"),
        (f"[a]\n{SSH}threads = 2.0", "threads = 2.0 does not fit"),
        (f'[a]\n{SSH}accelerator = "cuda"', 'accelerator = \'cuda\' does not fit; valid is "cpu", or "cuda:0"'),
        (f'[a]\n{SSH}accelerator = "cuda:-1"', "accelerator = 'cuda:-1' does not fit"),
        (f'[a]\n{SSH}accelerator = "CUDA:0"', "accelerator = 'CUDA:0' does not fit"),
        (f"[a]\n{SSH}env = 3", "env = 3 does not fit; valid is a table of texts"),
        (f'[a]\n{SSH}env = {{ "a-b" = "1" }}', "the name 'a-b' in env does not fit"),
        (f'[a]\n{SSH}env = {{ "" = "1" }}', "the name '' in env does not fit"),
        (f'[a]\n{SSH}env = {{ "ÄB" = "1" }}', "the name 'ÄB' in env does not fit"),
        (f'[a]\n{SSH}env = {{ A = 1, "0B" = "" }}', "the value of A in env and the name '0B' in env does not fit"),
        (f'[a]\n{SSH}env = {{ A = "\\u0000" }}', "the value of A in env does not fit"),
        (f'[a]\n{SSH}setup = "a\\u0000b"', "setup = 'a\\x00b' does not fit"),
        (f'[a]\n{SSH}setup = ["a"]', "setup = ['a'] does not fit; valid is a text"),
        (f'[a]\n{SSH}python = ""', "python = '' does not fit; valid is the name of a program, or a path"),
        (f'[a]\n{SSH}python = "env/bin/python"', "python = 'env/bin/python' does not fit"),
        (f'[a]\n{SSH}python = "-c"', "python = '-c' does not fit"),
        (f'[a]\n{SSH}python = "$HOME/python"', "python = '$HOME/python' does not fit"),
        (f'[a]\n{SSH}state_dir = "ngbkit"', "state_dir = 'ngbkit' does not fit; valid is a folder that begins with"),
        (f'[a]\n{SSH}state_dir = "~other/x"', "state_dir = '~other/x' does not fit"),
        (f"[a]\n{SSH}Threads = 3", "unknown key 'Threads'. Did you mean threads? It stands in [a] of FILE."),
        (f"[a]\n{SSH}port = 22", "unknown key 'port'."),
        (f"[a]\n{SSH}when = 2026-01-01", "unknown key 'when'."),
        (f'[a]\n{SSH}python = "{"x " * 500}"', "x x x x…"),
    ],
)
def test_what_does_not_fit_is_told_with_what_does(text: str | bytes, told: str) -> None:
    """With the file, the table and the line of the file where TOML itself is not right."""
    assert told in refuse(text)


@pytest.mark.parametrize(
    "host",
    [
        "-oProxyCommand=touch x",
        "me@-oProxyCommand=x",
        "a b",
        "a\\nb",
        "a;b",
        "$(a)",
        "`a`",
        "'a'",
        "a|b",
        "",
        "a\\u0000",
    ],
)
def test_a_host_that_ssh_or_a_shell_would_take_for_more_is_refused(host: str) -> None:
    """An option of ssh can run programs here."""
    assert "does not fit; valid is what ssh calls the machine" in refuse(f'[a]\nlaunch = "ssh"\nhost = "{host}"')


@pytest.mark.parametrize("host", ["orin", "me@10.0.0.7", "fe80::1%eth0", "ssh://me@orin:2222", "orin-2.lab_3", "gerät"])
def test_a_host_is_whatever_ssh_knows(host: str, project: Path) -> None:
    """Names, addresses of both kinds and URLs."""
    write(project / "devices.toml", f'[a]\nlaunch = "ssh"\nhost = "{host}"')

    assert host == devices.load()["a"].host


@pytest.mark.parametrize(
    "cores",
    [
        '""',
        "[]",
        '","',
        '"0-"',
        '"3-1"',
        '"a"',
        '"-1"',
        "[-1]",
        "[true]",
        "[1.0]",
        '["0-3"]',
        "4",
        '"0,,1"',
        '"٣"',
        '"99999"',
    ],
)
def test_what_are_no_cores_is_refused(cores: str) -> None:
    """A single number too, which could be meant as how many."""
    assert 'does not fit; valid is the numbers of cores: "0-3,8" or [0, 1].' in refuse(f"[a]\n{SSH}cores = {cores}")


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cores_are_written_as_they_are_read(cores: set[int]) -> None:
    """As a text with ranges, or as a list."""
    expected = tuple(sorted(cores))

    assert expected == keys.KEYS["cores"].read(devices.write_cores(list(cores)))
    assert expected == keys.KEYS["cores"].read(list(cores))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["ssh", "local", "slurm", "attach"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.text(), VALUES | st.dictionaries(st.sampled_from(sorted(keys.KEYS)) | st.text(), VALUES))
def test_any_table_is_read_or_found_faulty(label: str, table: Any) -> None:
    """And nothing that a file can hold ends in another error; what is read without a fault is a device."""
    fields, faults = keys.read(label, table, Path("/"))

    assert set(fields) <= set(keys.KEYS)
    assert faults or label == Device(label=label, **fields).label


def test_all_faults_are_told_at_once(project: Path) -> None:
    """One a line, so that a file is corrected in one go."""
    text = '[a]\nlaunch = "ssh"\nhots = "orin"\nthreads = 0\n[b]\nlaunch = "local"\n[c]\nlaunch = "attach"\nenv = {}\n'
    lines = refuse(text).splitlines()

    assert [
        "FILE has 4 faults:",
        "  [a] unknown key 'hots'. Did you mean host?",
        "  [a] threads = 0 does not fit; valid is an integer of at least 1.",
        '  [a] host is missing, which launch = "ssh" needs; valid is what ssh calls the machine: an alias of '
        "~/.ssh/config or user@address, without blanks and quotes, and not beginning with -.",
        '  [c] env does not go with launch = "attach", only with "local" or "ssh" or "slurm": remove it, '
        "or change launch.",
    ] == lines


def test_an_unknown_key_offers_those_that_go_with_the_launcher(project: Path) -> None:
    """As any unknown name does."""
    write(project / "devices.toml", f"[a]\n{ATTACH}zzz = 1")
    with pytest.raises(UnknownNameError) as caught:
        devices.load()

    assert ["accelerator", "cluster", "launch", "target", "threads"] == caught.value.known


def test_a_label_is_one_that_a_sweep_takes() -> None:
    """A device that can be described can be named."""
    for label in ("orin", "orin-2", "a.b", "_x", "9", "-x", "a b", "ä", "", "a/b"):
        try:
            is_fine = bool(Sweep(["resnet18"], devices=[label]))
        except UsageError:
            is_fine = False

        assert is_fine == keys.is_label(label)
