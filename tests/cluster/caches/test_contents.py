"""The contents of a device's caches, and the devices whose caches can be listed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from answers import list_rows
from keeping import META, list_keys, prepare, run_cache, switch_machine, tune

from ngbkit.cluster.caches import DeviceCaches, locate
from ngbkit.errors import UnknownNameError, UsageError

VERSION = META["versions"]["numpy"]


def test_preparations_and_results_are_listed(state_dir: Path) -> None:
    """The listing has the size and age of each item, the most recent first, and the totals."""
    prepare(state_dir, "older", size=2_000_000, days=3)
    prepare(state_dir, "newer", size=5_000)
    tune(state_dir, "tuned")
    answer = run_cache("list")
    newer, older, tuned, total = list_rows(answer)

    assert ("newer", "5 kB", "older", "2 MB", "3 d ago") == (
        newer["key"],
        newer["size"],
        older["key"],
        older["size"],
        older["used"],
    )
    assert "11,689,512 parameters" == newer["what"]
    assert "tvm: resnet18 batch 1" == tuned["what"]
    assert "2 preparations, 1 result of tuning" == total["what"]
    assert {"count": 2, "bytes": 2_005_000} == answer.json["totals"]["preparation"]
    assert answer.json == json.loads(json.dumps(answer.json))


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (
            {"versions": {"numpy": "0.1"}},
            f"unused here: it was tuned with numpy 0.1, this machine has {VERSION}",
        ),
        ({"versions": {"no-such-package": "2"}}, "no-such-package 2, this machine has none"),
        ({"versions": {"": "2"}}, "this machine has none"),
        ({"versions": 3}, ""),
        ({"compiler": "unheard-of"}, "unused here: this machine has no compiler unheard-of"),
    ],
)
def test_a_result_of_other_versions_is_marked(state_dir: Path, meta: dict[str, Any], message: str) -> None:
    """The listing of results that were carried here says why a compiler does not use them."""
    tune(state_dir, "ab12", **meta)
    result, _ = list_rows(run_cache("list"))

    assert message in result.get("note", "")
    assert bool(message) == bool(result.get("note", ""))


DEEP = 900 * "[" + 900 * "]"
RELEASE = {"requirements": ["a==1"], "python": "3.11", "packages": {}, "seconds": 1, "size_bytes": 1, "digest": ""}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("environments/ab/environment.json", DEEP),
        ("environments/ab/environment.json", json.dumps({**RELEASE, "requirements": []})),
        ("environments/ab/environment.json", json.dumps({**RELEASE, "seconds": math.inf})),
        ("cache/cpu/ab/prepared.json", f'{{"network": "a", "factors": {{"width": {DEEP}}}}}'),
        ("tuning/cpu/tvm/ab/meta.json", f'{{"network": "a", "target": {DEEP}}}'),
        ("tuning/cpu/tvm/ab/meta.json", json.dumps({"network": "a", "target": DEEP})),
    ],
)
def test_a_damaged_description_does_not_end_the_listing(state_dir: Path, name: str, text: str) -> None:
    """JSON that nests deeper than a text of it can be made, an empty list and an endless duration."""
    (state_dir / name).parent.mkdir(parents=True)
    (state_dir / name).write_text(text)

    answer = run_cache("list")

    assert answer.to_text()
    assert json.dumps(answer.json)


def test_an_archive_of_a_stranger_stays_in_its_folder(state_dir: Path, tmp_path: Path) -> None:
    """The line of the documents unpacks it with `zipfile`, which leads no name out of the folder."""
    tune(state_dir, "ab12")
    file = tmp_path / "tuned.zip"
    subprocess.run([sys.executable, "-m", "zipfile", "-c", file, state_dir / "tuning" / "cpu"], check=True)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("../../escaped.txt", "")
    elsewhere = tmp_path / "elsewhere" / "tuning"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", file, elsewhere], check=True)
    with switch_machine(tmp_path):
        keys = list_keys(locate("cpu"))

    assert ["ab12"] == keys
    assert [] == [path for path in tmp_path.rglob("escaped.txt") if not path.is_relative_to(elsewhere)]


def test_caches_may_be_empty(state_dir: Path) -> None:
    """A sentence says so, and the listing creates no folder."""
    answer = run_cache()

    assert f"Device cpu keeps nothing in {state_dir}." == answer.to_text()
    assert not (state_dir / "cache").exists()


def test_only_matching_items_are_listed(state_dir: Path) -> None:
    """A listing matches a prefix of the key, a compiler, or a part of a network's name."""
    tune(state_dir, "ab12")
    tune(state_dir, "cd34", network="DeiT3")
    tune(state_dir, "ef56", compiler="other")

    assert [["ab12"], ["cd34"], ["ef56"]] == [
        [item["key"] for item in run_cache("list", name).json["kept"]] for name in ("ab", "deit", "other")
    ]
    with pytest.raises(UsageError, match="invalid name: got 'xy', which matches nothing"):
        run_cache("list", "ab", "xy")


@pytest.mark.parametrize("content", ["{", "[]", "null", '{"facts": 3, "factors": [], "network": {}}', "[" * 100_000])
def test_unreadable_items_are_listed(state_dir: Path, content: str) -> None:
    """The listing has unreadable items, which can be removed."""
    (prepare(state_dir, "torn") / "prepared.json").write_text(content)
    (tune(state_dir, "odd") / "meta.json").write_text("[]")
    torn, odd, _ = list_rows(run_cache("list"))

    assert ("torn", "unfinished") == (torn["key"], torn["what"])
    assert "tvm: invalid meta.json" == odd["what"]


def test_links_are_not_followed(state_dir: Path, tmp_path: Path) -> None:
    """The size of an item excludes the targets of links."""
    (tmp_path / "big").write_bytes(b"\0" * 100_000)
    (prepare(state_dir, "one", size=1000) / "linked.onnx").symlink_to(tmp_path / "big")
    (state_dir / "cache" / "cpu" / "away").symlink_to(tmp_path, target_is_directory=True)
    (item,) = run_cache("list").json["kept"]

    assert ("one", 1000) == (item["key"], item["bytes"])


def test_a_device_of_another_machine_has_its_own_caches(devices_file: None) -> None:
    """The error names the machine's command, with its folder."""
    with pytest.raises(UsageError, match=r"run `ngbkit cache -d orin` there with NGBKIT_STATE_DIR=~/there\."):
        run_cache("list", "-d", "orin")
    with pytest.raises(UsageError, match=r"device mine .* run `ngbkit cache -d mine` there\."):
        run_cache("clean", "--keep", "0", "-d", "mine")


def test_a_device_of_this_machine_may_have_a_folder_of_its_own(devices_file: None, tmp_path: Path) -> None:
    """The devices file names it."""
    assert DeviceCaches(device="own", state_dir=tmp_path / "own") == locate("own")


def test_a_label_of_a_remote_client_is_valid(state_dir: Path) -> None:
    """A label is valid if caches exist under it, and never if its path leads out of the folder."""
    prepare(state_dir, "one", device="orin")

    assert ["one"] == list_keys(locate("orin"))
    for label in ("oron", "..", "../cache", ""):
        with pytest.raises(UnknownNameError):
            locate(label)
