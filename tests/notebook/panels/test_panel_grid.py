"""The table of a run's trials has a sign for each, and words for screen readers."""

from html.parser import HTMLParser

from ngbkit.api import Sweep
from ngbkit.notebook.panels import grid
from ngbkit.workloads.base import Workload


class Table(HTMLParser):
    """The cells of a table, with their titles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[tuple[str, str]] = []
        self.heads: list[str] = []
        self._open: tuple[str, str] = ("", "")
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self._open = (tag, dict(attrs).get("title", ""))

    def handle_data(self, data):
        tag, title = self._open
        if tag == "td":
            self.cells.append((data, title))
        elif tag == "th":
            self.heads.append(data)

    def handle_endtag(self, tag):
        self._open = ("", "")


def sweep(batch_sizes=(1, 4, 8), devices=("cpu",)) -> Sweep:
    networks = [Workload(name=name, source="timm", spec={"name": name}) for name in ("a<b>", "c")]
    return Sweep(networks, ["identity", "tvm"], batch_sizes, devices=devices, repeats=5)


def test_every_trial_has_its_sign():
    """Signs are in the order of batch sizes, pending trials included."""
    grid_sweep = sweep()
    statuses = {
        ("a<b>", "identity", 1): "ok",
        ("a<b>", "identity", 4): "ok",
        ("c", "tvm", 1): "crashed",
        ("c", "tvm", 4): "unsupported",
    }
    ids = {(trial.workload, trial.compiler, trial.batch_size): trial.id for trial in grid_sweep.trials()}

    html = grid.to_html(grid.group_trials(grid_sweep), {ids[labels]: status for labels, status in statuses.items()})
    table = Table(html)

    assert ["identity", "tvm", "a<b>", "c"] == table.heads
    assert [
        ("●●○", "2 ok, 1 pending"),
        ("○○○", "3 pending"),
        ("○○○", "3 pending"),
        ("✕–○", "1 crashed, 1 unsupported, 1 pending"),
    ] == table.cells


def test_many_trials_are_counted():
    """A cell with many trials shows counts instead of signs."""
    table = Table(grid.to_html(grid.group_trials(sweep(batch_sizes=range(1, 31))), {}))

    assert {("30 pending", "30 pending")} == set(table.cells)


def test_each_of_several_devices_has_its_rows():
    """The rows of several devices have the device's name."""
    table = Table(grid.to_html(grid.group_trials(sweep(devices=["cpu", "orin"])), {}))

    assert {"c on cpu", "c on orin"} < set(table.heads)


def test_ten_thousand_trials_are_small():
    """The page is updated with all of it, five times a second."""
    networks = [Workload(name=f"network{index}", source="timm", spec={"name": str(index)}) for index in range(125)]
    large = Sweep(networks, ["identity", "tvm", "openvino", "iree"], range(1, 21), repeats=5)

    html = grid.to_html(grid.group_trials(large), {})

    assert 10_000 == len(large)
    assert len(html) < 200_000


def test_a_trial_that_was_not_checked_has_a_sign_of_its_own():
    """An unchecked trial has its own sign in the grid and in the legend."""
    grid_sweep = sweep()
    statuses = {trial.id: "not-checked" for trial in grid_sweep.trials() if trial.compiler == "tvm"}
    html = grid.to_html(grid.group_trials(grid_sweep), statuses)

    assert ("???", "3 not-checked") in Table(html).cells
    assert "? not checked" in html
    assert "#d1495b" not in html
