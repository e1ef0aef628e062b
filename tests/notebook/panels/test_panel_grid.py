"""The table of a run's trials: a sign each, and words for who does not see it."""

from html.parser import HTMLParser

from ngbkit.notebook.panels import grid
from ngbkit.sweep.grid import Sweep
from ngbkit.workloads.base import Workload


class Table(HTMLParser):
    """The cells of a table, with their titles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[tuple[str, str]] = []
        self.heads: list[str] = []
        self._at: tuple[str, str] = ("", "")
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self._at = (tag, dict(attrs).get("title", ""))

    def handle_data(self, data):
        tag, title = self._at
        if tag == "td":
            self.cells.append((data, title))
        elif tag == "th":
            self.heads.append(data)

    def handle_endtag(self, tag):
        self._at = ("", "")


def sweep(batch_sizes=(1, 4, 8), devices=("cpu",)) -> Sweep:
    networks = [Workload(name=name, source="timm", spec={"name": name}) for name in ("a<b>", "c")]
    return Sweep(networks, ["identity", "tvm"], batch_sizes, devices=devices, repeats=5)


def test_every_trial_has_its_sign():
    """In the order of batch sizes; what is pending is there too."""
    asked = sweep()
    statuses = {"ok": (0, 1), "crashed": (4,), "unsupported": (5,)}
    trials = {(one.workload, one.compiler, one.batch_size): one.id for one in asked.trials()}
    places = [("a<b>", "identity", 1), ("a<b>", "identity", 4), None, None, ("c", "tvm", 1), ("c", "tvm", 4)]
    known = {trials[places[at]]: status for status, ats in statuses.items() for at in ats}

    table = Table(grid.to_html(grid.cells(asked), known))

    assert ["identity", "tvm", "a<b>", "c"] == table.heads
    assert [
        ("●●○", "2 ok, 1 pending"),
        ("○○○", "3 pending"),
        ("○○○", "3 pending"),
        ("✕–○", "1 crashed, 1 unsupported, 1 pending"),
    ] == table.cells


def test_many_trials_are_counted():
    """Where signs would be too many they are numbers."""
    asked = sweep(batch_sizes=range(1, 31))

    table = Table(grid.to_html(grid.cells(asked), {}))

    assert {("30 pending", "30 pending")} == set(table.cells)


def test_devices_have_lines_of_their_own():
    """Where there are several."""
    table = Table(grid.to_html(grid.cells(sweep(devices=["cpu", "orin"])), {}))

    assert {"c on cpu", "c on orin"} < set(table.heads)


def test_ten_thousand_trials_are_small():
    """A page takes so much five times a second."""
    networks = [Workload(name=f"network{at}", source="timm", spec={"name": str(at)}) for at in range(125)]
    asked = Sweep(networks, ["identity", "tvm", "openvino", "iree"], range(1, 21), repeats=5)

    html = grid.to_html(grid.cells(asked), {})

    assert 10_000 == len(asked)
    assert len(html) < 200_000
