"""Stored self-checks and their reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from selfchecks import NOISE, make

from ngbkit.runs import recordings, selfcheck
from ngbkit.runs.selfcheck import latest, store

RECORDED = Path(__file__).parents[3] / "notebooks" / "data" / "recorded"


def test_the_latest_check_of_a_device_is_loaded() -> None:
    """Each device has its own, as plain JSON."""
    store.save(make(threads=1))
    store.save(make())
    store.save(make("orin", chip="Orin"))
    check = latest()

    assert (2, 0.004, None) == (check["threads"], check["noise_floor"], check["contended_share"])
    assert make("orin", chip="Orin").to_json() == latest("orin", chip="Orin")


def test_a_check_of_another_chip_is_ignored(state_dir: Path) -> None:
    """The store ignores a check of another chip and an invalid file."""
    nothing = latest()
    store.save(make(chip="another"))
    other_chip = latest()
    damaged = []
    for text in ("{", "[" * 100_000):
        (state_dir / "selfcheck" / "cpu.json").write_text(text)
        damaged.append(latest())

    assert (None, None, [None, None]) == (nothing, other_chip, damaged)


def test_a_replayed_check_is_not_stored(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replayed self-check is not stored, as it is of another machine."""
    monkeypatch.setenv(recordings.FOLDER, str(RECORDED))
    monkeypatch.setenv(recordings.MEASURE, "never")

    assert 3 == selfcheck.run(groups=3, repeats=20).quiet.groups
    assert not (state_dir / "selfcheck").exists()


def test_the_report_has_conclusions() -> None:
    """A sentence on each deviation comes first, then the conditions, then the figures."""
    noisy = replace(NOISE, coverage=0.8, coverage_low=0.7, coverage_high=0.87)
    check = make(contended=noisy)
    text, page = check.to_report().to_text(), check._repr_html_()

    assert text.index("A speed-up of") < text.index("The load is high.") < text.index("coverage")
    assert "95.0 % (91.0 to 97.3 %)" in text
    assert "A speed-up of 1.0090 or more, or of 0.9911 or less, is distinguishable from none between two copies" in text
    assert "in 80.0 % of the groups beside a busy process: they are too narrow" in text
    assert 1 == page.count("<table")
    assert [] == [word for word in ("<script", "http") if word in page]


def test_the_report_says_what_two_copies_cannot_show() -> None:
    """The report of a contended or drifting machine states the limits of two copies."""
    busy = make(quiet=replace(NOISE, contended_share=0.38, drift=0.53))
    text = "38 % of the samples were contended and the latency moved by 53 % over the groups. Two copies of one program"

    assert [] == [line for line in make().conclude() if "two different programs" in line]
    assert [True] == [line.startswith(text) for line in busy.conclude() if "two different" in line]
