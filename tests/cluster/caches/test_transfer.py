"""Results of tuning, carried to another device and taken there."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keeping import carry_out, elsewhere, keys, tune

from ngbkit.cluster.caches import contents
from ngbkit.cluster.caches.contents import Place
from ngbkit.errors import UsageError
from ngbkit.hardware import environment


@pytest.mark.parametrize("name", ["tuned.tar", "tuned.tar.gz", "tuned.tgz"])
def test_results_come_as_they_were_sent(state_dir: Path, tmp_path: Path, name: str) -> None:
    """Every byte of the records, in the same place."""
    sent = tune(state_dir, "ab12"), tune(state_dir, "cd34")
    (sent[0] / "deep" / "er").mkdir(parents=True)
    (sent[0] / "deep" / "er" / "log.txt").write_text("deep")
    (sent[0] / ".lock").write_text("")
    exported = carry_out("export", str(tmp_path / name))
    with elsewhere(tmp_path):
        answer = carry_out("import", str(tmp_path / name))
        came = contents.locate("cpu").tuning / "tvm"

    assert ["ab12", "cd34"] == [kept["key"] for kept in exported.json["kept"]]
    assert ["ab12", "cd34"] == sorted(path.name for path in came.iterdir())
    assert ["deep/er/log.txt", "meta.json", "records.json"] == sorted(
        path.relative_to(came / "ab12").as_posix() for path in contents.files(came / "ab12")
    )
    assert (sent[1] / "records.json").read_bytes() == (came / "cd34" / "records.json").read_bytes()
    assert all("imported, without its libraries" in row["done"] for row in answer.rows)
    assert [] == contents.leftovers(Place(device="cpu", state_dir=tmp_path / "elsewhere"))


def test_libraries_come_only_where_that_is_asked_for(state_dir: Path, tmp_path: Path) -> None:
    """They are programs."""
    sent = tune(state_dir, "ab12")
    carry_out("export", str(tmp_path / "tuned.tar"))
    with elsewhere(tmp_path):
        carry_out("import", str(tmp_path / "tuned.tar"), "--with-libraries")
        came = contents.locate("cpu").tuning / "tvm" / "ab12"

    assert (sent / "network.so").read_bytes() == (came / "network.so").read_bytes()


def test_a_library_comes_whole_or_not_at_all(state_dir: Path, tmp_path: Path) -> None:
    """Also the text in its folder is a part of it, at any depth; half of one would be taken for a whole one."""
    sent = tune(state_dir, "ab12")
    for folder in (sent / "library", sent / "library" / "more", sent / "notes"):
        folder.mkdir()
        (folder / "index.json").write_text("{}")
    (sent / "library" / "code.so").write_bytes(b"ELF")
    carry_out("export", str(tmp_path / "tuned.tar"))
    with elsewhere(tmp_path):
        carry_out("import", str(tmp_path / "tuned.tar"))
        came = contents.locate("cpu").tuning / "tvm" / "ab12"

    assert ["meta.json", "notes/index.json", "records.json"] == sorted(
        path.relative_to(came).as_posix() for path in contents.files(came)
    )


def test_a_result_of_nothing_but_libraries_is_left_out(state_dir: Path, tmp_path: Path) -> None:
    """What would be left of it says that there is something, and there is not."""
    (tune(state_dir, "ab12") / "records.json").unlink()
    carry_out("export", str(tmp_path / "tuned.tar"))
    with elsewhere(tmp_path):
        answer = carry_out("import", str(tmp_path / "tuned.tar"))
        came = keys(contents.locate("cpu"))

    assert [] == came
    assert answer.rows[0]["done"].startswith("left out: it is nothing but libraries")


@pytest.mark.parametrize("name", ["tuned.tar", "tuned.tar.gz"])
def test_the_same_results_give_the_same_archive(state_dir: Path, tmp_path: Path, name: str) -> None:
    """Whenever, and in whichever order, they were written."""
    tune(state_dir, "ab12")
    tune(state_dir, "cd34")
    carry_out("export", str(tmp_path / name))
    with elsewhere(tmp_path, "other"):
        for key in ("cd34", "ab12"):
            folder = tune(tmp_path / "other", key)
            os.utime(folder / "records.json", (1.0, 1.0))
        carry_out("export", str(tmp_path / f"other-{name}"))

    assert (tmp_path / name).read_bytes() == (tmp_path / f"other-{name}").read_bytes()


def test_an_archive_is_one_that_tar_reads(state_dir: Path, tmp_path: Path) -> None:
    """It tells neither who nor when, and its manifest is in front."""
    tune(state_dir, "ab12")
    carry_out("export", str(tmp_path / "tuned.tar.gz"))
    with tarfile.open(tmp_path / "tuned.tar.gz") as archive:
        members = archive.getmembers()

    assert "manifest.json" == members[0].name
    assert {"tvm/ab12/meta.json", "tvm/ab12/records.json", "tvm/ab12/network.so"} == {one.name for one in members[1:]}
    assert {(0, 0, 0, "", "")} == {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in members}


def test_only_some_results_are_carried(state_dir: Path, tmp_path: Path) -> None:
    """Those that are named: when they go, and when they come."""
    for key, network in {"ab12": "resnet18", "cd34": "deit3", "ef56": "resnet50"}.items():
        tune(state_dir, key, network=network)
    carry_out("export", str(tmp_path / "tuned.tar"), "resnet")
    with elsewhere(tmp_path):
        with pytest.raises(
            UsageError, match=r"answers to deit\. It holds tvm ab12 \(resnet18\), tvm ef56 \(resnet50\)"
        ):
            carry_out("import", str(tmp_path / "tuned.tar"), "deit")
        carry_out("import", str(tmp_path / "tuned.tar"), "resnet50")
        came = keys(contents.locate("cpu"))

    assert ["ef56"] == came


def test_an_archive_is_not_replaced_unasked(state_dir: Path, tmp_path: Path) -> None:
    """It may be the only one."""
    tune(state_dir, "ab12")
    file = tmp_path / "tuned.tar"
    file.write_text("precious")
    with pytest.raises(UsageError, match="--overwrite"):
        carry_out("export", str(file))
    before = file.read_text()
    carry_out("export", str(file), "--overwrite")

    assert "precious" == before
    assert tarfile.is_tarfile(file)


@pytest.mark.parametrize(("there", "stays"), [(100, False), (200, True), (300, True)])
def test_what_has_tried_more_stays(state_dir: Path, tmp_path: Path, there: int, stays: bool) -> None:
    """And what has tried less gives way, with all that was in its folder."""
    tune(state_dir, "ab12", candidates=200)
    carry_out("export", str(tmp_path / "tuned.tar"))
    with elsewhere(tmp_path):
        folder = tune(tmp_path / "elsewhere", "ab12", candidates=there)
        (folder / "own.txt").write_text("own")
        answer = carry_out("import", str(tmp_path / "tuned.tar"))

    assert stays == (folder / "own.txt").exists()
    assert (there if stays else 200) == contents.read_meta(folder)["candidates"]
    assert answer.rows[0]["done"].startswith("left out: what is here" if stays else "imported, in the place of")


def test_a_dry_run_imports_nothing(state_dir: Path, tmp_path: Path) -> None:
    """It says what would become of each."""
    tune(state_dir, "ab12")
    carry_out("export", str(tmp_path / "tuned.tar"))
    with elsewhere(tmp_path):
        answer = carry_out("import", str(tmp_path / "tuned.tar"), "--dry-run")
        came = keys(contents.locate("cpu"))

    assert ([], False) == (came, answer.json["imported"])
    assert answer.rows[0]["done"].startswith("imported")


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"versions": {"numpy": "0.1"}}, f"with numpy 0.1, and here is {np.__version__}"),
        ({"versions": {"no-such-package": "2"}}, "no-such-package 2, and here it is not installed"),
        ({"versions": {"": "2"}}, "and here it is not installed"),
        ({"compiler": "unheard-of"}, "there is no compiler unheard-of here"),
    ],
)
def test_what_was_made_otherwise_is_refused(state_dir: Path, tmp_path: Path, about: dict[str, Any], told: str) -> None:
    """It says what is unlike; --anyway takes it all the same."""
    tune(state_dir, "ab12", **about)
    file = str(tmp_path / "tuned.tar")
    carry_out("export", file)
    with elsewhere(tmp_path):
        with pytest.raises(UsageError) as raised:
            carry_out("import", file)
        before = keys(contents.locate("cpu"))
        carry_out("import", file, "--anyway")
        after = keys(contents.locate("cpu"))

    assert told in str(raised.value)
    assert "--anyway" in str(raised.value)
    assert ([], ["ab12"]) == (before, after)


def test_what_was_made_on_another_chip_is_refused(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that was tuned for one is slow on another, or does not run."""
    tune(state_dir, "ab12")
    with monkeypatch.context() as patch:
        patch.setattr(environment, "chip", lambda: "Abacus 1")
        carry_out("export", str(tmp_path / "tuned.tar"))
    with elsewhere(tmp_path), pytest.raises(UsageError, match="made on Abacus 1, and this is "):
        carry_out("import", str(tmp_path / "tuned.tar"))


def test_what_was_made_for_another_kind_of_chip_is_refused(state_dir: Path, tmp_path: Path, devices_file: None) -> None:
    """A CPU's code is no GPU's."""
    tune(state_dir, "ab12")
    carry_out("export", str(tmp_path / "tuned.tar"))
    with pytest.raises(UsageError, match="made on a device of kind cpu, and this one is of kind cuda"):
        carry_out("import", str(tmp_path / "tuned.tar"), "-d", "own")


def test_what_tuning_has_just_begun_is_not_carried(state_dir: Path, tmp_path: Path) -> None:
    """It says nothing of itself yet, and would be refused where it comes."""
    tune(state_dir, "ab12")
    (tune(state_dir, "cd34") / "meta.json").unlink()
    tune(state_dir, "ef56", candidates=None)
    exported = carry_out("export", str(tmp_path / "tuned.tar"))
    with elsewhere(tmp_path):
        carry_out("import", str(tmp_path / "tuned.tar"))
        came = keys(contents.locate("cpu"))

    assert ["ab12"] == came == [kept["key"] for kept in exported.json["kept"]]


def test_a_name_that_no_archive_can_hold_is_told(state_dir: Path, tmp_path: Path) -> None:
    """Nothing is written then."""
    (tune(state_dir, "ab12") / "rücken.txt").write_text("")
    with pytest.raises(UsageError, match="cannot be a file of a result"):
        carry_out("export", str(tmp_path / "tuned.tar"))

    assert [] == list(tmp_path.glob("*.tar*"))
