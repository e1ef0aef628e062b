"""Pages that are written from the code: `python tests/pages.py` writes them, and `test_readme.py` compares."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import tomllib

from ngbkit import registry
from ngbkit.commands.command import load_magics
from ngbkit.compilers.quantiser import Quantiser
from ngbkit.metrics.metric import REFERENCES, Metric, load_metrics
from ngbkit.sweep.argument import to_markdown
from ngbkit.sweep.column import Column
from ngbkit.sweep.low_precision import list_offered

_NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
OPTIONS, METRICS, PRECISIONS, INSTALLING = (
    _NOTEBOOKS / f"{name}.md" for name in ("options", "metrics", "precisions", "installing")
)
_EXTRA = re.compile(r"((?:^# .*\n)+)([\w-]+) = ", re.MULTILINE)
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def render_options() -> str:
    """The page of all arguments of the magics."""
    head = (
        "# Options\n\n"
        "Every argument of every magic, as `%ngbench?` and `ngbkit run --help` explain it. "
        "The shell has the same commands without the `%ng`; `%ngbench` is `ngbkit run` there.\n"
    )
    sections = (f"\n## `%{name}`\n\n{to_markdown(command.magic_arguments)}" for name, command in load_magics().items())
    return head + "".join(sections)


def render_metrics() -> str:
    """The page of all metrics."""
    head = (
        "# Metrics\n\n"
        "Every metric, as `ds.ngb.speedup?` explains it. $T_c(b)$ is the throughput of the compiler $c$ at batch "
        "size $b$ in samples per second, $t_c(b)$ its median latency, $S_c(b)$ its speed-up, $C_c$ its compile time, "
        "$d$ the depth, $w$ the width. Each is a method of `ds.ngb`, takes `ci=0.95` for an interval, and "
        'is a table of `ds.ngb.table("speedup")` and of `ngbkit show --figure speedup` unless it needs arguments. '
        "A package adds one by an entry point: [a metric is one record](extending.md).\n\n"
        "| call | metric | | formula | relative to | unit | chart, frames |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
    )
    return head + "".join(map(_render_metric, load_metrics().values()))


def _render_metric(metric: Metric) -> str:
    required = [name for name, parameter in metric.signature.parameters.items() if parameter.default is parameter.empty]
    arguments = ", ".join(f"{name}=…" for name in required if name != "dataset")
    places = [
        *([f"`ds.ngb.plot.{metric.name}()`"] if metric.chart else []),
        *(["frames, `compare`, `mean`"] if metric.in_frames and metric.is_tabulated else []),
    ]
    cells = [
        f"`ds.ngb.{metric.name}({arguments})`",
        metric.describe(**dict.fromkeys(required, "")),
        metric.meaning,
        f"${metric.formula}$" if metric.formula else "",
        " and ".join(REFERENCES[dim] for dim in metric.relative_to),
        metric.unit_suffix.strip(" ()"),
        "; ".join(places),
    ]
    return f"| {' | '.join(cells)} |\n"


def render_precisions() -> str:
    """The page of precisions, which people write, with the tables that follow from declarations."""
    tables = {"columns": _render_columns, "quantisers": _render_quantisers, "costs": _render_costs}
    text = PRECISIONS.read_text(encoding="utf-8")
    return _PART.sub(lambda part: f"{part[1]}{tables[part[2]]()}{part[3]}", text)


def _render_columns() -> str:
    """The precisions of each compiler, its default first."""
    compilers = registry.load_all(registry.COMPILERS)
    # Tests have plug-ins of their own.
    names = sorted(name for name, each in compilers.items() if each.compile.__module__.startswith("ngbkit."))
    rows = [f"| `{name}` | {', '.join(list_offered(Column(compiler=name).load_compiler()))} |\n" for name in names]
    return "| compiler | precisions |\n| --- | --- |\n" + "".join(rows)


def _render_quantisers() -> str:
    """The quantisers by their columns."""
    records = registry.load_all(registry.QUANTISERS).values()
    # Some are a partial call, whose own module is functools.
    functions = [(each, getattr(each.quantise, "func", each.quantise)) for each in records]
    quantisers = [each for each, function in functions if function.__module__.startswith("ngbkit.")]
    quantisers.sort(key=lambda each: (each.precision, each.name))
    rows = [
        f"| {', '.join(_name_column(name, each) for name in each.compilers)} | {each.summary} | "
        f"{'yes' if each.calibrates else 'no'} | `{each.install}` |\n"
        for each in quantisers
    ]
    return "| column | method | needs samples | install |\n| --- | --- | --- | --- |\n" + "".join(rows)


def _name_column(compiler: str, quantiser: Quantiser) -> str:
    label = Column(compiler=compiler, precision=quantiser.precision).label
    return f"`{label}`"


def _render_costs() -> str:
    """The metrics over samples that judge."""
    metrics = [metric for metric in load_metrics().values() if metric.is_evaluated]
    rows = [f"| `ds.ngb.{each.name}()` | {each.describe()} | {each.meaning} |\n" for each in metrics]
    return "| call | metric | meaning |\n| --- | --- | --- |\n" + "".join(rows)


def render_installing() -> str:
    """The page of installation, which people write, with the extras of pyproject.toml."""
    project = (_NOTEBOOKS.parent / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(project)["project"]["optional-dependencies"]
    section = project.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    comments = {name: comment.replace("\n# ", " ")[2:].strip() for comment, name in _EXTRA.findall(section)}
    names = {name: [re.split("[>=~<;]", text)[0].strip() for text in texts] for name, texts in extras.items()}
    rows = [f"| `{name}` | {comments[name]} | {', '.join(dict.fromkeys(names[name]))} |\n" for name in extras]
    table = "| extra | | packages |\n| --- | --- | --- |\n" + "".join(rows)
    return _PART.sub(lambda part: f"{part[1]}{table}{part[3]}", INSTALLING.read_text(encoding="utf-8"))


PAGES: Mapping[Path, Callable[[], str]] = {
    OPTIONS: render_options,
    METRICS: render_metrics,
    PRECISIONS: render_precisions,
    INSTALLING: render_installing,
}
"""Renders the page of each file."""

if __name__ == "__main__":
    for path, render in PAGES.items():
        path.write_text(render(), encoding="utf-8")
