"""The conformance suite fails for a wrong compiler."""

import json
from pathlib import Path

import numpy as np
import pytest

from ngbkit.compilers.base import Compiler, Program, Task
from ngbkit.sweep.records import Contract
from ngbkit.testing import CompilerConformance, observation
from ngbkit.testing.networks import relative_rmse
from ngbkit.testing.observation import Attempt, observe


def _compile_wrongly(task: Task) -> Program:
    """Return wrong outputs, report a thread too many, put an array into the facts, and leave a file in the home."""
    if task.arrays[0].shape == (3, 3, 16, 16):
        raise OSError("no room for three")
    Path("~/left.txt").expanduser().touch()
    marker = task.cache / "compiled"
    value = float(marker.exists())
    marker.touch()
    return Program(
        run=lambda: None,
        fetch=lambda _: [np.full((1, 5), value, np.float32)],
        contract=Contract(runtime="wrong", threads=task.threads + 1),
        facts={"array": np.zeros(1)},
        explain=lambda: {"nodes_before": 2, "nodes_after": 1, "nodes_fused": 3},
    )


WRONG = Compiler(
    name="wrong",
    summary="wrong in every way that the suite checks",
    forms={"onnx": ()},
    packages=("numpy",),
    install="pip install numpy",
    compile=_compile_wrongly,
    caches=True,
)
ABSENT = Compiler(
    name="absent",
    summary="needs a package that does not exist",
    forms={"onnx": ()},
    packages=("ngbkit-nowhere",),
    install="pip install ngbkit-nowhere",
    compile=_compile_wrongly,
)
SUITE = type("SuiteOfWrong", (CompilerConformance,), {"compiler": f"{__name__}:WRONG"})


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("networks_compute_the_same_function", "OSError: no room for three"),
        ("program_can_be_called_again", "OSError: no room for three"),
        ("program_states_its_contract", "threads=3"),
        ("program_tells_plain_facts", "ndarray is not JSON serializable"),
        ("program_explains_itself", "'nodes_fused': 3"),
        ("again_gives_the_same", "Not equal to tolerance"),
        ("networks_leave_nothing_elsewhere", "left.txt"),
        ("unknown_operator_is_refused", "it compiled"),
    ],
)
def test_a_wrong_compiler_fails_the_suite(test: str, message: str) -> None:
    """Each check of the suite fails for a compiler that gets it wrong."""
    with pytest.raises(AssertionError, match=message):
        getattr(SUITE(), f"test_compiled_{test}")()


def test_wrong_outputs_are_measured() -> None:
    """Outputs of zeros have a relative error of 1; a wrong number of outputs has an infinite one."""
    errors = {str(attempt): attempt.rmse for attempt in observe(f"{__name__}:WRONG") if not attempt.error}

    assert errors["small_conv batch 1 from onnx"] == 1.0
    assert errors["small_attention batch 3 from onnx"] == float("inf")


def test_a_missing_package_fails_where_all_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that cannot work passes with its reason, unless all packages are required."""
    suite = type("SuiteOfAbsent", (CompilerConformance,), {"compiler": f"{__name__}:ABSENT"})()
    monkeypatch.delenv("NGBKIT_REQUIRE_ALL", raising=False)
    suite.test_says_why_it_is_unavailable()
    monkeypatch.setenv("NGBKIT_REQUIRE_ALL", "1")

    assert suite.test_compiled_networks_compute_the_same_function is None
    with pytest.raises(AssertionError, match="pip install ngbkit-nowhere"):
        suite.test_says_why_it_is_unavailable()


def test_observations_are_kept_until_something_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Observations are read from the cache without a child until packages or code change."""
    monkeypatch.setenv(observation.FOLDER, str(tmp_path))
    verbs: list[str] = []
    run_child = observation._run_child

    def record_child(verb: str, *arguments: str, home: Path | None = None) -> None:
        verbs.append(verb)
        run_child(verb, *arguments, home=home)

    monkeypatch.setattr(observation, "_run_child", record_child)

    def observe_anew() -> tuple[list[str], list[tuple[object, ...]]]:
        verbs.clear()
        attempts = observation._observe_form(f"{__name__}:WRONG", "onnx", "cpu")
        results = [(str(case), case.error, case.rmse, case.contract, tuple(case.stray)) for case in attempts]
        return verbs[-2:], results

    (first, attempts), (second, cached) = observe_anew(), observe_anew()
    (sources,) = tmp_path.glob("*/out/sources.json")
    monkeypatch.setattr(observation, "_list_packages", lambda: ["numpy 0.1"])
    third, _ = observe_anew()
    monkeypatch.setattr(observation, "_hash_file", lambda path: "changed")
    fourth, _ = observe_anew()

    assert [["compile_all", "compile_again"], [], *[["compile_all", "compile_again"]] * 2] == [
        *(first, second, third, fourth)
    ]
    assert attempts == cached
    assert {__file__, observation.__file__.replace("observation", "child")} <= set(json.loads(sources.read_text()))


def test_rmse_is_relative_to_what_is_expected() -> None:
    """The error is relative to the root mean square of the expected values, and infinite for another shape or a NaN."""
    expected = np.array([3.0, 4.0])

    assert relative_rmse(expected, expected * 1.5) == 0.5
    assert relative_rmse(expected, expected[:1]) == float("inf")
    assert relative_rmse(expected, np.array([3.0, np.nan])) == float("inf")


def test_an_attempt_reads_as_what_was_compiled() -> None:
    """The text of an attempt names its network, batch size, form and options."""
    attempt = Attempt(network="net", batch_size=2, form="onnx", options={"hint": "throughput"})

    assert str(attempt) == 'net batch 2 from onnx {"hint": "throughput"}'
