"""Where a self-check is kept, and when it is no longer true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from selfchecks import NOISE, make

from ngbkit.runs.selfcheck import Bias, latest, report, store


def test_the_last_check_of_a_device_is_found() -> None:
    """That of each device apart, as plain JSON."""
    store.keep(make(threads=1))
    store.keep(make())
    store.keep(make("orin", chip="Orin"))
    found = latest()

    assert found is not None
    assert (2, 0.004, None) == (found["threads"], found["noise_floor"], found["disturbed_share"])
    assert make("orin", chip="Orin").to_json() == latest("orin", chip="Orin")


def test_none_is_found_where_there_is_none_of_this_chip(state_dir: Path) -> None:
    """Or where the file does not read."""
    nothing = latest()
    store.keep(make(chip="another"))
    of_another = latest()
    (state_dir / "selfcheck" / "cpu.json").write_text("{")

    assert (None, None, None) == (nothing, of_another, latest())


def test_the_report_says_what_it_comes_to() -> None:
    """What disturbed stands first; then the figures, and a sentence on each thing that is off."""
    off = Bias(network="resnet18", compiler="openvino", tool="benchmark_app", ratio=1.2, low=1.1, high=1.3, rounds=8)
    gone = Bias(network="conv", compiler="tvm", tool="a tool", problem="tvm not installed; get it by: pip install it")
    noisy = replace(NOISE, coverage=0.8, coverage_low=0.7, coverage_high=0.87)
    shown = report.to_text(make(disturbed=noisy, bias=(off, gone)))
    page = make(disturbed=noisy, bias=(off, gone))._repr_html_()

    assert shown.startswith("The load is high.")
    assert "95.0 % (91.0 to 97.3 %)" in shown
    assert "A speed-up of 1.0090 or more, or of 0.9911 or less" in shown
    assert "in 80.0 % of the groups beside a busy process: they are too narrow" in shown
    assert "resnet18 takes 1.200 times as long in ngbkit (openvino) as in benchmark_app." in shown
    assert "pip install it" in shown
    assert 2 == page.count("<table")
    assert [] == [word for word in ("<script", "http") if word in page]


def test_the_coverage_of_all_groups_counts_each_once() -> None:
    """Quiet or not."""
    fewer = replace(NOISE, groups=50, coverage=0.9)

    assert 0.95 == make().coverage
    assert (0.95 * 200 + 0.9 * 50) / 250 == make(disturbed=fewer).coverage
