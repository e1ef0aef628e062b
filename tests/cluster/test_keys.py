"""The keys of a table in the devices file, and the errors for invalid ones."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from devicefiles import ATTACH, ORIN, SLURM, SSH, make_project, write
from hypothesis import given
from hypothesis import strategies as st

from ngbkit import validation
from ngbkit.api import Sweep
from ngbkit.cluster import devices, keys
from ngbkit.cluster.devices import Device
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.hardware.environment import format_cores

KEYS = [field.name for field in fields(Device) if field.name != "label"]
project = pytest.fixture(autouse=True)(make_project)


def refuse(text: str | bytes) -> str:
    """Return the error for a file of that text, without its name."""
    file = write(Path("devices.toml"), text)
    with pytest.raises(UsageError) as caught:
        devices.load()
    assert str(file) in str(caught.value)
    return str(caught.value).replace(str(file.absolute()), "FILE")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no device in FILE: add a table such as [orin]"),
        ("# [orin]\n", "no device in FILE"),
        ('[orin]\nlaunch = "ssh\n', "FILE is not valid TOML: "),
        ('[orin]\nlaunch = "ssh\n', "(at line 2, column 14)"),
        (f"{ORIN}{ORIN}", "twice (at line 4, column 6)"),
        (f'{ORIN}host = "other"', "Cannot overwrite a value (at end of document)"),
        ("a = " + "[" * 5000, "FILE is not valid TOML"),
        (f"[orin]\nthreads = {'9' * 5000}", "FILE is not valid TOML"),
        (b'[orin]\nhost = "\xff"', "FILE is not UTF-8 (byte 15)"),
        ('launch = "ssh"', "launch is outside of any table: begin a device with a line such as [orin]"),
        (f"[{ORIN[:6]}]\n{SSH}", "orin is outside of any table"),
        ('["my orin"]\nlaunch = "local"', '["my orin"] is not a valid label; expected letters, digits'),
        ('["gerät"]\nlaunch = "local"', '["gerät"] is not a valid label'),
        ('["-rf"]\nlaunch = "local"', '["-rf"] is not a valid label'),
        ('["../up"]\nlaunch = "local"', '["../up"] is not a valid label'),
        ('[""]\nlaunch = "local"', '[""] is not a valid label'),
        (
            f"[orin.nano]\n{SSH}",
            """\n  [orin] has an unexpected table 'nano'; only env is one. Quote a label with a dot: ["orin.nano"].""",
        ),
        ('[orin]\nlaunch = "ssh"', '[orin] host is missing, which launch = "ssh" requires; expected an alias of'),
        ("[orin]", 'FILE: [orin] launch is missing; expected "local", "ssh", "slurm", "array" or "attach".'),
        ("[orin]\nlaunch = 3", '[orin] invalid launch: got 3; expected "local"'),
        ('[orin]\nlaunch = ["ssh"]', "[orin] invalid launch: got ['ssh']; expected"),
        ('[orin]\nlaunch = "shs"', "unknown launcher 'shs'. Did you mean ssh? It is in [orin] of FILE."),
        ('[orin]\nlaunch = "SSH"', "unknown launcher 'SSH'. Did you mean ssh"),
        ('[here]\nlaunch = "local"\nhost = "x"', 'host does not fit launch = "local", only "ssh" or "slurm" or'),
        (f"[a]\n{ATTACH}cores = [0]", 'cores does not fit launch = "attach", only "local" or "ssh"'),
        (f'[a]\n{ATTACH}setup = "x"', "setup does not fit"),
        (f"[a]\n{ATTACH}target = -1", "invalid target: got -1; expected the number of an engine"),
        ('[a]\nlaunch = "slurm"', 'address is missing, which launch = "slurm" requires; expected the address'),
        ('[a]\nlaunch = "array"', 'indices is missing, which launch = "array" requires; expected the number of jobs'),
        ('[a]\nlaunch = "array"\nindices = 0', "invalid indices: got 0; expected the number of jobs"),
        ('[a]\nlaunch = "array"\nindices = 2\nsbatch = ["--array=0-3"]', "sbatch has --array, which `indices` sets"),
        (f"[a]\n{SLURM}indices = 2", 'indices does not fit launch = "slurm", only "array"'),
        (f'[a]\n{SSH}trust = "my lab"', "invalid trust: got 'my lab'; expected a label of letters"),
        (f'[a]\n{ATTACH}trust = "lab"', 'trust does not fit launch = "attach"'),
        (f'[a]\n{SLURM}sbatch = "--partition=gpu"', "invalid sbatch: got '--partition=gpu'; expected a list of"),
        (f'[a]\n{SLURM}sbatch = ["partition=gpu"]', "invalid sbatch: got ['partition=gpu']; expected"),
        (f'[a]\n{SLURM}sbatch = ["-p", 3]', "invalid sbatch: got ['-p', 3]; expected"),
        (f'[a]\n{SLURM}network = "direct"', 'network does not fit launch = "slurm", only "ssh"'),
        (f'[a]\n{SSH}network = "direct"', 'address is missing, which network = "direct" requires'),
        (f'[a]\n{SSH}network = "vpn"', 'invalid network: got \'vpn\'; expected "tunnel" or "direct"'),
        (f'[a]\n{SSH}address = "10.0.0.1"', 'address requires network = "direct", a tunnel needs none'),
        (f'[a]\n{SSH}network = "direct"\naddress = "0.0.0.0"', "invalid address: got '0.0.0.0'; expected"),
        (f'[a]\n{SSH}network = "direct"\naddress = "--x"', "invalid address: got '--x'; expected"),
        (f"[a]\n{SSH}threads = -1", "invalid threads: got -1; expected an integer >= 1"),
        (f"[a]\n{SSH}threads = 0", "invalid threads: got 0; expected"),
        (f"[a]\n{SSH}threads = true", "invalid threads: got True; expected"),
        (f"[a]\n{SSH}threads = 2.0", "invalid threads: got 2.0; expected"),
        (f'[a]\n{SSH}accelerator = "cuda"', 'invalid accelerator: got \'cuda\'; expected "cpu", or "cuda:0"'),
        (f'[a]\n{SSH}accelerator = "cuda:-1"', "invalid accelerator: got 'cuda:-1'; expected"),
        (f'[a]\n{SSH}accelerator = "CUDA:0"', "invalid accelerator: got 'CUDA:0'; expected"),
        (f"[a]\n{SSH}env = 3", "invalid env: got 3; expected a table of texts"),
        (f'[a]\n{SSH}env = {{ "a-b" = "1" }}', "invalid env: got the name 'a-b'; expected"),
        (f'[a]\n{SSH}env = {{ "" = "1" }}', "invalid env: got the name ''; expected"),
        (f'[a]\n{SSH}env = {{ "ÄB" = "1" }}', "invalid env: got the name 'ÄB'; expected"),
        (f'[a]\n{SSH}env = {{ A = 1, "0B" = "" }}', "invalid env: got the value of A and the name '0B'; expected"),
        (f'[a]\n{SSH}env = {{ A = "\\u0000" }}', "invalid env: got the value of A; expected"),
        (f'[a]\n{SSH}setup = "a\\u0000b"', "invalid setup: got 'a\\x00b'; expected"),
        (f'[a]\n{SSH}setup = ["a"]', "invalid setup: got ['a']; expected a text"),
        (f'[a]\n{SSH}python = ""', "invalid python: got ''; expected the name of a program, or a path"),
        (f'[a]\n{SSH}python = "env/bin/python"', "invalid python: got 'env/bin/python'; expected"),
        (f'[a]\n{SSH}python = "-c"', "invalid python: got '-c'; expected"),
        (f'[a]\n{SSH}python = "$HOME/python"', "invalid python: got '$HOME/python'; expected"),
        (f'[a]\n{SSH}state_dir = "ngbkit"', "invalid state_dir: got 'ngbkit'; expected a folder that begins with"),
        (f'[a]\n{SSH}state_dir = "~other/x"', "invalid state_dir: got '~other/x'; expected"),
        (f"[a]\n{SSH}Threads = 3", "unknown key 'Threads'. Did you mean threads? It is in [a] of FILE."),
        (f"[a]\n{SSH}port = 22", "unknown key 'port'."),
        (f"[a]\n{SSH}when = 2026-01-01", "unknown key 'when'."),
        (f'[a]\n{SSH}python = "{"x " * 500}"', "x x x x…"),
    ],
)
def test_an_error_has_the_value_and_the_valid_ones(text: str | bytes, message: str) -> None:
    """The error of an invalid file has the value, the valid ones, the file, and the table or line."""
    assert message in refuse(text)


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
def test_a_host_that_is_no_plain_name_is_refused(host: str) -> None:
    """An option of ssh could run programs here."""
    assert "; expected an alias of ~/.ssh/config" in refuse(f'[a]\nlaunch = "ssh"\nhost = "{host}"')


@pytest.mark.parametrize("host", ["orin", "me@10.0.0.7", "fe80::1%eth0", "ssh://me@orin:2222", "orin-2.lab_3", "gerät"])
def test_a_host_has_any_form_of_ssh(host: str, project: Path) -> None:
    """A host is a name, an address of either kind, or a URL."""
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
def test_invalid_cores_are_refused(cores: str) -> None:
    """Invalid cores are refused, including a single number, which could be a count."""
    assert '; expected the numbers of cores: "0-3,8" or [0, 1].' in refuse(f"[a]\n{SSH}cores = {cores}")


@given(st.sets(st.integers(0, 300), min_size=1))
def test_formatted_cores_are_parsed_again(cores: set[int]) -> None:
    """The same cores are parsed from a list and from a text with ranges."""
    expected = tuple(sorted(cores))

    assert expected == validation.parse(keys.Cores, format_cores(list(cores)))
    assert expected == validation.parse(keys.Cores, list(cores))


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


@given(st.text(), VALUES | st.dictionaries(st.sampled_from(KEYS) | st.text(), VALUES))
def test_any_table_is_parsed_or_faulty(label: str, table: Any) -> None:
    """No table raises another error; a table without a fault is a device."""
    fields, faults = keys.parse_device(Device, label, table, Path("/"))

    assert set(fields) <= set(KEYS)
    assert faults or label == Device(label=label, **fields).label


def test_all_faults_are_reported_at_once(project: Path) -> None:
    """The error of an invalid file has one line per fault."""
    text = '[a]\nlaunch = "ssh"\nhots = "orin"\nthreads = 0\n[b]\nlaunch = "local"\n[c]\nlaunch = "attach"\nenv = {}\n'
    lines = refuse(text).splitlines()

    assert [
        "FILE has 4 faults:",
        "  [a] unknown key 'hots'. Did you mean host?",
        "  [a] invalid threads: got 0; expected an integer >= 1.",
        '  [a] host is missing, which launch = "ssh" requires; expected an alias of '
        "~/.ssh/config or user@address, without blanks and quotes, and not beginning with -.",
        '  [c] env does not fit launch = "attach", only "local" or "ssh" or "slurm" or "array": remove it, or change '
        "launch.",
    ] == lines


def test_the_error_for_an_unknown_key_lists_those_of_the_launcher(project: Path) -> None:
    """The error of an unknown key lists the keys of the launcher."""
    write(project / "devices.toml", f"[a]\n{ATTACH}zzz = 1")
    with pytest.raises(UnknownNameError) as caught:
        devices.load()

    assert ["accelerator", "cluster", "launch", "target", "threads"] == caught.value.choices


def test_labels_are_those_of_a_sweep() -> None:
    """Every device can be measured on."""
    for label in ("orin", "orin-2", "a.b", "_x", "9", "-x", "a b", "ä", "", "a/b"):
        try:
            is_valid = bool(Sweep(["resnet18"], devices=[label]))
        except UsageError:
            is_valid = False

        assert is_valid == keys.is_label(label)
