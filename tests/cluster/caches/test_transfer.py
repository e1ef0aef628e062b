"""Tuning results, exported and imported on another device."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keeping import list_keys, run_cache, switch_machine, tune

from ngbkit.cluster.caches import contents
from ngbkit.cluster.caches.contents import DeviceCaches
from ngbkit.errors import UsageError
from ngbkit.hardware import environment


@pytest.mark.parametrize("name", ["tuned.tar", "tuned.tar.gz", "tuned.tgz"])
def test_results_arrive_unchanged(state_dir: Path, tmp_path: Path, name: str) -> None:
    """Every byte of the records, in the same place."""
    sent = tune(state_dir, "ab12"), tune(state_dir, "cd34")
    (sent[0] / "deep" / "er").mkdir(parents=True)
    (sent[0] / "deep" / "er" / "log.txt").write_text("deep")
    (sent[0] / ".lock").write_text("")
    exported = run_cache("export", str(tmp_path / name))
    with switch_machine(tmp_path):
        answer = run_cache("import", str(tmp_path / name))
        folder = contents.locate("cpu").tuning / "tvm"

    assert ["ab12", "cd34"] == [item["key"] for item in exported.json["kept"]]
    assert ["ab12", "cd34"] == sorted(path.name for path in folder.iterdir())
    assert ["deep/er/log.txt", "meta.json", "records.json"] == sorted(
        path.relative_to(folder / "ab12").as_posix() for path in contents.walk_files(folder / "ab12")
    )
    assert (sent[1] / "records.json").read_bytes() == (folder / "cd34" / "records.json").read_bytes()
    assert all("imported, without its libraries" in row["done"] for row in answer.rows)
    assert [] == contents.find_leftovers(DeviceCaches(device="cpu", state_dir=tmp_path / "elsewhere"))


def test_libraries_are_imported_only_on_demand(state_dir: Path, tmp_path: Path) -> None:
    """They are programs."""
    sent = tune(state_dir, "ab12")
    run_cache("export", str(tmp_path / "tuned.tar"))
    with switch_machine(tmp_path):
        run_cache("import", str(tmp_path / "tuned.tar"), "--with-libraries")
        folder = contents.locate("cpu").tuning / "tvm" / "ab12"

    assert (sent / "network.so").read_bytes() == (folder / "network.so").read_bytes()


def test_a_library_is_imported_as_a_whole(state_dir: Path, tmp_path: Path) -> None:
    """The text in its folders is a part of it; half of a library would pass for a complete one."""
    sent = tune(state_dir, "ab12")
    for parent in (sent / "library", sent / "library" / "more", sent / "notes"):
        parent.mkdir()
        (parent / "index.json").write_text("{}")
    (sent / "library" / "code.so").write_bytes(b"ELF")
    run_cache("export", str(tmp_path / "tuned.tar"))
    with switch_machine(tmp_path):
        run_cache("import", str(tmp_path / "tuned.tar"))
        folder = contents.locate("cpu").tuning / "tvm" / "ab12"

    assert ["meta.json", "notes/index.json", "records.json"] == sorted(
        path.relative_to(folder).as_posix() for path in contents.walk_files(folder)
    )


def test_a_result_with_only_libraries_is_skipped(state_dir: Path, tmp_path: Path) -> None:
    """Without them nothing useful would remain."""
    (tune(state_dir, "ab12") / "records.json").unlink()
    run_cache("export", str(tmp_path / "tuned.tar"))
    with switch_machine(tmp_path):
        answer = run_cache("import", str(tmp_path / "tuned.tar"))
        keys = list_keys(contents.locate("cpu"))

    assert [] == keys
    assert answer.rows[0]["done"].startswith("skipped: it has only libraries")


@pytest.mark.parametrize("name", ["tuned.tar", "tuned.tar.gz"])
def test_the_same_results_give_the_same_archive(state_dir: Path, tmp_path: Path, name: str) -> None:
    """Whenever, and in whichever order, they were written."""
    tune(state_dir, "ab12")
    tune(state_dir, "cd34")
    run_cache("export", str(tmp_path / name))
    with switch_machine(tmp_path, "other"):
        for key in ("cd34", "ab12"):
            folder = tune(tmp_path / "other", key)
            os.utime(folder / "records.json", (1.0, 1.0))
        run_cache("export", str(tmp_path / f"other-{name}"))

    assert (tmp_path / name).read_bytes() == (tmp_path / f"other-{name}").read_bytes()


def test_an_archive_is_one_that_tar_reads(state_dir: Path, tmp_path: Path) -> None:
    """It has no owners and no times, and its manifest is the first file."""
    tune(state_dir, "ab12")
    run_cache("export", str(tmp_path / "tuned.tar.gz"))
    with tarfile.open(tmp_path / "tuned.tar.gz") as archive:
        members = archive.getmembers()

    assert "manifest.json" == members[0].name
    assert {"tvm/ab12/meta.json", "tvm/ab12/records.json", "tvm/ab12/network.so"} == {
        member.name for member in members[1:]
    }
    assert {(0, 0, 0, "", "")} == {
        (member.mtime, member.uid, member.gid, member.uname, member.gname) for member in members
    }


def test_results_can_be_selected(state_dir: Path, tmp_path: Path) -> None:
    """By name, for the export and for the import."""
    for key, network in {"ab12": "resnet18", "cd34": "deit3", "ef56": "resnet50"}.items():
        tune(state_dir, key, network=network)
    run_cache("export", str(tmp_path / "tuned.tar"), "resnet")
    with switch_machine(tmp_path):
        with pytest.raises(UsageError, match=r"matches deit\. It has tvm ab12 \(resnet18\), tvm ef56 \(resnet50\)"):
            run_cache("import", str(tmp_path / "tuned.tar"), "deit")
        run_cache("import", str(tmp_path / "tuned.tar"), "resnet50")
        keys = list_keys(contents.locate("cpu"))

    assert ["ef56"] == keys


def test_an_archive_is_replaced_only_on_demand(state_dir: Path, tmp_path: Path) -> None:
    """It may be the only one."""
    tune(state_dir, "ab12")
    file = tmp_path / "tuned.tar"
    file.write_text("precious")
    with pytest.raises(UsageError, match="--overwrite"):
        run_cache("export", str(file))
    text = file.read_text()
    run_cache("export", str(file), "--overwrite")

    assert "precious" == text
    assert tarfile.is_tarfile(file)


@pytest.mark.parametrize(("candidates", "stays"), [(100, False), (200, True), (300, True)])
def test_the_longer_search_stays(state_dir: Path, tmp_path: Path, candidates: int, stays: bool) -> None:
    """An import replaces a shorter one, with its whole folder."""
    tune(state_dir, "ab12", candidates=200)
    run_cache("export", str(tmp_path / "tuned.tar"))
    with switch_machine(tmp_path):
        folder = tune(tmp_path / "elsewhere", "ab12", candidates=candidates)
        (folder / "own.txt").write_text("own")
        answer = run_cache("import", str(tmp_path / "tuned.tar"))

    assert stays == (folder / "own.txt").exists()
    assert (candidates if stays else 200) == contents.read_meta(folder)["candidates"]
    assert answer.rows[0]["done"].startswith("skipped: the result here" if stays else "imported, replacing")


def test_a_dry_run_imports_nothing(state_dir: Path, tmp_path: Path) -> None:
    """It reports what would be done."""
    tune(state_dir, "ab12")
    run_cache("export", str(tmp_path / "tuned.tar"))
    with switch_machine(tmp_path):
        answer = run_cache("import", str(tmp_path / "tuned.tar"), "--dry-run")
        keys = list_keys(contents.locate("cpu"))

    assert ([], False) == (keys, answer.json["imported"])
    assert answer.rows[0]["done"].startswith("imported")


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"versions": {"numpy": "0.1"}}, f"with numpy 0.1, this machine has {np.__version__}"),
        ({"versions": {"no-such-package": "2"}}, "no-such-package 2, this machine has none"),
        ({"versions": {"": "2"}}, "this machine has none"),
        ({"compiler": "unheard-of"}, "this machine has no compiler unheard-of"),
    ],
)
def test_results_of_other_versions_are_refused(
    state_dir: Path, tmp_path: Path, meta: dict[str, Any], message: str
) -> None:
    """The error lists the differences; --anyway imports them all the same."""
    tune(state_dir, "ab12", **meta)
    file = str(tmp_path / "tuned.tar")
    run_cache("export", file)
    with switch_machine(tmp_path):
        with pytest.raises(UsageError) as raised:
            run_cache("import", file)
        refused = list_keys(contents.locate("cpu"))
        run_cache("import", file, "--anyway")
        imported = list_keys(contents.locate("cpu"))

    assert message in str(raised.value)
    assert "--anyway" in str(raised.value)
    assert ([], ["ab12"]) == (refused, imported)


def test_results_from_another_chip_are_refused(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code tuned for one chip is slow on another, or does not run."""
    tune(state_dir, "ab12")
    with monkeypatch.context() as patch:
        patch.setattr(environment, "read_chip", lambda: "Abacus 1")
        run_cache("export", str(tmp_path / "tuned.tar"))
    with switch_machine(tmp_path), pytest.raises(UsageError, match="tuned on Abacus 1, this is "):
        run_cache("import", str(tmp_path / "tuned.tar"))


def test_results_for_another_kind_of_chip_are_refused(state_dir: Path, tmp_path: Path, devices_file: None) -> None:
    """A GPU cannot run the code of a CPU."""
    tune(state_dir, "ab12")
    run_cache("export", str(tmp_path / "tuned.tar"))
    with pytest.raises(UsageError, match="tuned on a device of kind cpu, this one is of kind cuda"):
        run_cache("import", str(tmp_path / "tuned.tar"), "-d", "own")


def test_unfinished_results_are_not_exported(state_dir: Path, tmp_path: Path) -> None:
    """Without a complete meta.json an import would refuse them."""
    tune(state_dir, "ab12")
    (tune(state_dir, "cd34") / "meta.json").unlink()
    tune(state_dir, "ef56", candidates=None)
    exported = run_cache("export", str(tmp_path / "tuned.tar"))
    with switch_machine(tmp_path):
        run_cache("import", str(tmp_path / "tuned.tar"))
        keys = list_keys(contents.locate("cpu"))

    assert ["ab12"] == keys == [item["key"] for item in exported.json["kept"]]


def test_an_invalid_file_name_is_reported(state_dir: Path, tmp_path: Path) -> None:
    """No archive is written."""
    (tune(state_dir, "ab12") / "rücken.txt").write_text("")
    with pytest.raises(UsageError, match="invalid name of a file in a tuning result"):
        run_cache("export", str(tmp_path / "tuned.tar"))

    assert [] == list(tmp_path.glob("*.tar*"))
