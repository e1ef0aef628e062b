"""Imports run one way down a list, and the device side stays without the client's packages."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter

import pytest
from rooms import ADD_ONS, FILES, MODULES, find_imported, imports, imports_of, parse, unit

import ngbkit

DEVICE_SIDE = (
    *(
        "errors",
        "user_text",
        "tabular",
        "validation",
        "options",
        "registry",
        "exports",
        "report",
        "requirements",
        "limits",
        "files",
        "workloads",
        "sweep",
        "hardware",
        "compilers",
        "device",
    ),
)
CLIENT_SIDE = (
    *("cluster", "dataset", "metrics", "figures", "runs", "api", "commands", "notebook", "testing", "cli", "__main__"),
)
ORDER = (*DEVICE_SIDE, *CLIENT_SIDE, *ADD_ONS)
CLIENT_PACKAGES = {
    "xarray",
    "altair",
    "ipywidgets",
    "ipyparallel",
    "pandas",
    "IPython",
    "ipykernel",
    "rich",
    "h5netcdf",
    "scipy",
}
# The engine is ipyparallel's, and events leave it by ipykernel's publisher.
EXCEPTIONS = {("device/plan.py", "ipykernel"), ("device/engine.py", "ipyparallel")}


def test_every_module_has_a_place() -> None:
    """A new module is given its place in the order, and one that is gone loses it."""
    units = {unit(name) for name in FILES} - {"__init__"}

    assert set(ORDER) == units
    assert len(set(ORDER)) == len(ORDER)


def test_every_room_says_what_it_is_for() -> None:
    """Each package's `__init__` opens with a docstring."""
    silent = [name for name in FILES if name.endswith("__init__.py") and not ast.get_docstring(parse(name))]

    assert [] == silent


def test_the_package_names_every_room() -> None:
    """The docstring of the package lists every room."""
    drawing = str(ngbkit.__doc__)

    assert [] == [
        room for room in ORDER if room != "__main__" and not re.search(rf"^ *(\w+, )*{room}\b", drawing, re.M)
    ]


def find_upward(name: str) -> set[tuple[str, str]]:
    """The imports of a file of units after it in the order, and of any add-on, those inside functions included."""
    inner = [module.removeprefix("ngbkit.") for module in imports_of(name, True) if module.startswith("ngbkit.")]
    used = {unit(module) for module in inner if module in MODULES or module.rpartition(".")[0] in MODULES}
    is_upward = {module: ORDER.index(module) > ORDER.index(unit(name)) for module in used}
    return {(name, module) for module in used - {unit(name)} if is_upward[module] or module in ADD_ONS}


@pytest.mark.guard
def test_imports_run_one_way() -> None:
    """A module imports, at any time, from its own room, or from rooms before it in the order that are no add-on."""
    assert set() == {pair for name in FILES if name != "__init__.py" for pair in find_upward(name)}


def find_circle(order: TopologicalSorter[str]) -> list[str]:
    """The files of a circle of imports, the first one again at the end; empty where there is none."""
    try:
        order.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_found() -> None:
    """A circle of imports is found and named by its files."""
    assert sorted({*find_circle(TopologicalSorter({"a": {"b"}, "b": {"a"}, "c": {"a"}}))}) == ["a", "b"]


def test_no_file_imports_itself_by_a_detour() -> None:
    """No circle joins files, imports inside functions and of types included; a package may export what imports it."""
    graph = {name: find_imported(name) for name in FILES if not name.endswith("__init__.py")}
    order = TopologicalSorter({name: imported & set(graph) for name, imported in graph.items()})

    assert find_circle(order) == []


def test_the_device_side_imports_nothing_of_the_client() -> None:
    """No file of it does, not even inside a function: a Jetson has none of these packages."""
    names = [name for name in FILES if unit(name) in DEVICE_SIDE]
    used = {(name, module.split(".")[0]) for name in names for module in imports_of(name, True)}

    assert EXCEPTIONS == {(name, package) for name, package in used if package in CLIENT_PACKAGES}


def test_the_package_itself_imports_nothing() -> None:
    """The package looks up its exports on demand and imports nothing itself."""
    outer = [
        units
        for units in imports_of("__init__.py", False)
        if not units.startswith(("importlib", "typing", "types", "sys", "__fut"))
    ]

    assert [] == outer


def test_the_reader_of_imports_sees_them() -> None:
    """The reader returns imports, those inside functions on request, and none for types alone."""
    code = """
import a
if TYPE_CHECKING:
    import b
try:
    from c import d
except ImportError:
    d = None
def f():
    import e
"""
    body = ast.parse(code).body

    assert ["a", "c.d"] == list(imports(body, False))
    assert ["a", "c.d", "e"] == list(imports(body, True))
