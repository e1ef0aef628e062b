"""What a device keeps, and on which devices that can be seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from keeping import carry_out, keys, prepare, tune

from ngbkit.cluster.caches import contents
from ngbkit.cluster.caches.contents import Place
from ngbkit.errors import UnknownNameError, UsageError


def test_a_device_keeps_preparations_and_results(state_dir: Path) -> None:
    """Each with its size and age, what was used last on top, and the sum below; for programs in bytes and seconds."""
    prepare(state_dir, "older", size=2_000_000, days=3)
    prepare(state_dir, "newer", size=5_000)
    tune(state_dir, "tuned")
    answer = carry_out("list")
    newer, older, tuned, total = answer.rows

    assert ("newer", "5 kB", "older", "2 MB", "3 d ago") == (
        newer["key"],
        newer["size"],
        older["key"],
        older["size"],
        older["used"],
    )
    assert "1 ONNX, 1 compiled" == newer["holds"]
    assert "11,689,512 parameters" == newer["what"]
    assert "tvm: resnet18 batch 1" == tuned["what"]
    assert "200 candidates in 5 min 0 s, llvm -mcpu=znver5" == tuned["holds"]
    assert ["2 preparations", "1 result of tuning"] == total["what"]
    assert {"count": 2, "bytes": 2_005_000} == answer.json["totals"]["preparation"]
    assert answer.json == json.loads(json.dumps(answer.json))


def test_a_target_is_told_in_words(state_dir: Path) -> None:
    """Also where a compiler has it as JSON."""
    tune(state_dir, "tuned", target='{"kind":"llvm","tag":"","keys":["cpu"],"num-cores":2,"mcpu":"znver4"}')
    tuned, _ = carry_out("list").rows

    assert "200 candidates in 5 min 0 s, llvm num-cores=2 mcpu=znver4" == tuned["holds"]


def test_a_device_may_keep_nothing(state_dir: Path) -> None:
    """That is a sentence, and no folder is made by looking."""
    answer = carry_out()

    assert f"Device cpu keeps nothing in {state_dir}." == answer.to_text()
    assert not (state_dir / "cache").exists()


def test_only_what_answers_to_a_name_is_listed(state_dir: Path) -> None:
    """How a key begins, a compiler, or a part of a network's name; a name that nothing answers to is told."""
    tune(state_dir, "ab12")
    tune(state_dir, "cd34", network="DeiT3")
    tune(state_dir, "ef56", compiler="other")

    assert [["ab12"], ["cd34"], ["ef56"]] == [
        [kept["key"] for kept in carry_out("list", name).json["kept"]] for name in ("ab", "deit", "other")
    ]
    with pytest.raises(UsageError, match="nothing that is kept answers to 'xy'"):
        carry_out("list", "ab", "xy")


def test_what_does_not_read_is_listed_all_the_same(state_dir: Path) -> None:
    """It takes room, and can be cleaned away."""
    (prepare(state_dir, "torn") / "prepared.json").write_text("{")
    (tune(state_dir, "odd") / "meta.json").write_text("[]")
    torn, odd, _ = carry_out("list").rows

    assert ("torn", "") == (torn["key"], torn["what"])
    assert "tvm: its meta.json does not read" == odd["what"]


def test_links_are_not_followed(state_dir: Path, tmp_path: Path) -> None:
    """What is behind one is not the device's own."""
    (tmp_path / "big").write_bytes(b"\0" * 100_000)
    (prepare(state_dir, "one", size=1000) / "linked.onnx").symlink_to(tmp_path / "big")
    (state_dir / "cache" / "cpu" / "away").symlink_to(tmp_path, target_is_directory=True)
    (kept,) = carry_out("list").json["kept"]

    assert ("one", 1000) == (kept["key"], kept["bytes"])


def test_a_device_of_another_machine_keeps_its_own(devices_file: None) -> None:
    """Where to look is told, and with which folder."""
    with pytest.raises(UsageError, match=r"run `ngbkit cache -d orin` over there with NGBKIT_STATE_DIR=~/there\."):
        carry_out("list", "-d", "orin")
    with pytest.raises(UsageError, match=r"device mine .* run `ngbkit cache -d mine` over there\."):
        carry_out("clean", "--keep", "0", "-d", "mine")


def test_a_device_of_this_machine_may_have_a_folder_of_its_own(devices_file: None, tmp_path: Path) -> None:
    """Which the devices file names."""
    assert Place(device="own", state_dir=tmp_path / "own", accelerator="cuda") == contents.locate("own")


def test_a_label_that_only_the_client_knows_will_do_over_there(state_dir: Path) -> None:
    """Where something is kept under it; never a path that leads out of the folder."""
    prepare(state_dir, "one", device="orin")

    assert ["one"] == keys(contents.locate("orin"))
    for label in ("oron", "..", "../cache", ""):
        with pytest.raises(UnknownNameError):
            contents.locate(label)
