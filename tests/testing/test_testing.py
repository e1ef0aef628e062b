"""The conformance suite must itself be able to fail."""

import json
from pathlib import Path

import numpy as np
import pytest

from ngbkit.compilers.base import Compiler, Program, Task
from ngbkit.sweep.records import Contract
from ngbkit.testing import Attempt, CompilerConformance, observation, observe, relative_rmse


def _compile_wrongly(task: Task) -> Program:
    """Answers with outputs of its own, states a thread too many, keeps an array as a fact, and a file in the home."""
    if task.batch_size == 3:
        raise OSError("no room for three")
    Path("~/left.txt").expanduser().touch()
    compiled_before = task.cache / "compiled"
    value = float(compiled_before.exists())
    compiled_before.touch()
    return Program(
        run=lambda: None,
        fetch=lambda _: [np.full((1, 5), value, np.float32)],
        contract=Contract(runtime="wrong", threads=task.threads + 1),
        facts={"array": np.zeros(1)},
        explain=lambda: {"nodes_before": 2, "nodes_after": 1, "nodes_fused": 3},
    )


WRONG = Compiler(
    name="wrong",
    summary="wrong in every way that the suite looks at",
    forms={"onnx": ()},
    packages=("numpy",),
    install="pip install numpy",
    compile=_compile_wrongly,
    caches=True,
)
ABSENT = Compiler(
    name="absent",
    summary="needs what nobody has",
    forms={"onnx": ()},
    packages=("ngbkit-nowhere",),
    install="pip install ngbkit-nowhere",
    compile=_compile_wrongly,
)
SUITE = type("SuiteOfWrong", (CompilerConformance,), {"compiler": f"{__name__}:WRONG"})


@pytest.mark.parametrize(
    ("test", "said"),
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
def test_a_wrong_compiler_fails_the_suite(test: str, said: str) -> None:
    """Each thing that the suite looks at fails for a compiler that gets it wrong."""
    with pytest.raises(AssertionError, match=said):
        getattr(SUITE(), f"test_compiled_{test}")()


def test_wrong_outputs_are_measured() -> None:
    """Outputs of zeros have a relative error of 1, and outputs of another number are infinitely wrong."""
    errors = {str(attempt): attempt.rmse for attempt in observe(f"{__name__}:WRONG") if not attempt.error}

    assert errors["small_conv batch 1 from onnx"] == 1.0
    assert errors["two_outputs batch 1 from onnx"] == float("inf")


def test_a_missing_package_fails_where_all_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that cannot work passes with its reason, unless everything is required to be there."""
    suite = type("SuiteOfAbsent", (CompilerConformance,), {"compiler": f"{__name__}:ABSENT"})()
    monkeypatch.delenv("NGBKIT_REQUIRE_ALL", raising=False)
    suite.test_says_why_it_is_unavailable()
    monkeypatch.setenv("NGBKIT_REQUIRE_ALL", "1")

    assert suite.test_compiled_networks_compute_the_same_function is None
    with pytest.raises(AssertionError, match="pip install ngbkit-nowhere"):
        suite.test_says_why_it_is_unavailable()


def test_observations_are_kept_until_something_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What children found is read again, without a child; other packages or other code, and they run anew."""
    monkeypatch.setenv(observation.FOLDER, str(tmp_path))
    verbs: list[str] = []
    run_child = observation._run_child

    def note(verb: str, *arguments: str, home: Path | None = None) -> None:
        verbs.append(verb)
        run_child(verb, *arguments, home=home)

    monkeypatch.setattr(observation, "_run_child", note)

    def observe_anew() -> tuple[list[str], list[tuple[object, ...]]]:
        verbs.clear()
        attempts = observation._observed(f"{__name__}:WRONG", "onnx", "cpu")
        return verbs[-2:], [(str(one), one.error, one.rmse, one.contract, tuple(one.stray)) for one in attempts]

    (first, attempts), (second, kept) = observe_anew(), observe_anew()
    (sources,) = tmp_path.glob("*/out/sources.json")
    monkeypatch.setattr(observation, "_packages", lambda: ["numpy 0.1"])
    third, _ = observe_anew()
    monkeypatch.setattr(observation, "_digest", lambda path: "changed")
    fourth, _ = observe_anew()

    assert [["compile_all", "compile_again"], [], *[["compile_all", "compile_again"]] * 2] == [
        *(first, second, third, fourth)
    ]
    assert attempts == kept
    assert {__file__, observation.__file__.replace("observation", "child")} <= set(json.loads(sources.read_text()))


def test_rmse_is_relative_to_what_is_expected() -> None:
    """The error is over the root mean square of the expected values, and infinite for another shape or a NaN."""
    expected = np.array([3.0, 4.0])

    assert relative_rmse(expected, expected * 1.5) == 0.5
    assert relative_rmse(expected, expected[:1]) == float("inf")
    assert relative_rmse(expected, np.array([3.0, np.nan])) == float("inf")


def test_an_attempt_reads_as_what_was_compiled() -> None:
    """An attempt names its network, batch size, form and options in a message."""
    attempt = Attempt(network="net", batch_size=2, form="onnx", options={"hint": "throughput"})

    assert str(attempt) == 'net batch 2 from onnx {"hint": "throughput"}'
