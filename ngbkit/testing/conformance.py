"""The conformance suite of compilers."""

from __future__ import annotations

import os
import re
from typing import get_args

import numpy as np
import pytest

from ngbkit.compilers.base import Compiler, Form
from ngbkit.device.reference import judge
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.testing.alterations import find_accepted, load_reference, run_other_inputs
from ngbkit.testing.child import PROFILED_CALLS, PROFILED_ROUNDS, THREADS, UNKNOWN_OPERATOR, resolve
from ngbkit.testing.networks import NETWORKS
from ngbkit.testing.observation import Attempt, observe

TOLERANCE = 1e-4
# bf16 keeps 8 bits; a reordered output or a dropped weight is an error of order 1.
LOW_PRECISION_TOLERANCE = 5e-2
COUNTS = ("nodes_before", "nodes_after", "nodes_fused", "fallbacks", "graph_breaks")


class CompilerConformance:
    """The suite that every compiler must pass; subclass it in a test module, and set `compiler`.

    If the compiler cannot work on this machine, only its record and the reason that it reports are tested.

    Attributes
    ----------
    compiler : str
        The name of its entry point, or ``"package.module:ATTRIBUTE"``.
    accelerator : str
        The accelerator to compile for: ``"cpu"``, or ``"cuda"``.
    required : bool
        Whether the suite fails under ``NGBKIT_REQUIRE_ALL=1`` on a machine without the compiler's packages. False for a
        compiler whose packages cannot be installed everywhere.
    """

    compiler: str
    accelerator: str = "cpu"
    required: bool = True

    def __init_subclass__(cls) -> None:
        """Keep the tests that apply on this machine, rather than skip the others one by one."""
        super().__init_subclass__()
        tests = [name for name in vars(CompilerConformance) if name.startswith("test_")]
        if resolve(cls.compiler).unavailable(cls.accelerator):
            inapplicable = [name for name in tests if name.startswith("test_compiled_")]
        else:
            inapplicable = ["test_says_why_it_is_unavailable"]
        for name in inapplicable:
            setattr(cls, name, None)

    @property
    def record(self) -> Compiler:
        """The compiler under test."""
        return resolve(self.compiler)

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts at networks that every compiler should support, except options that it refuses here.

        On a GPU, a form without any network that compiles is left out if another form has one: of the runtimes of one
        compiler, only some may be built for the GPU.
        """
        attempts = [case for case in observe(self.compiler, self.accelerator) if case.network != UNKNOWN_OPERATOR]
        forms = {attempt.form for attempt in attempts}
        if self.accelerator != "cpu":
            forms = {attempt.form for attempt in attempts if not attempt.refused} or forms
        return [attempt for attempt in attempts if attempt.form in forms and not (attempt.options and attempt.refused)]

    def test_record_is_complete(self) -> None:
        """The record describes the compiler, its forms, its packages and how to install them."""
        record = self.record

        assert record.name
        assert record.summary
        assert record.packages
        assert record.install
        assert record.forms
        assert set(record.forms) <= set(get_args(Form)), record.forms

    def test_options_are_documented(self) -> None:
        """Every option has a line of help, and its default is one of its choices."""
        for name, option in self.record.options.items():
            assert option.help, name
            assert not option.choices or option.default in option.choices, name

    def test_unknown_option_is_refused(self) -> None:
        """An unknown option raises an error that suggests the nearest valid one."""
        for name in self.record.options:
            with pytest.raises(UnknownNameError, match=rf"Did you mean .*{re.escape(name)}"):
                self.record.settle({f"{name}x": 1})
        with pytest.raises(UnknownNameError, match=f"unknown option of {re.escape(self.record.name)}"):
            self.record.settle({"nothing like any of them": 1})

    def test_unfit_value_is_refused(self) -> None:
        """An invalid value of an option raises an error that lists the valid ones."""
        for name in self.record.options:
            with pytest.raises(UsageError, match=r"invalid option .*; expected "):
                self.record.settle({name: ["no option takes a list"]})

    def test_says_why_it_is_unavailable(self) -> None:
        """A compiler that cannot work here reports what is missing, with the install command if it is a package."""
        record = self.record
        problem, reason = record.find_package_problem(), record.unavailable(self.accelerator)
        must_be_installed = self.required and os.environ.get("NGBKIT_REQUIRE_ALL") == "1"

        assert reason
        assert not (problem and must_be_installed), reason
        assert not problem or (reason == problem and "; install with: " in reason), reason

    def test_compiled_networks_compute_the_same_function(self) -> None:
        """Outputs fetched right after the first call match the float64 reference, in its order, at each batch size."""
        plain = [attempt for attempt in self.attempts if not attempt.options]
        wrong = {str(attempt): attempt.error or attempt.rmse for attempt in plain if not attempt.rmse <= TOLERANCE}

        assert plain
        assert not wrong, wrong

    def test_compiled_options_compute_the_same_function(self) -> None:
        """Every choice of every option compiles, and is correct within the precision of its contract.

        A choice that does not support this accelerator may be refused, and so may all choices of an option.
        """
        wrong = {}
        for attempt in self.attempts:
            low = attempt.contract is not None and attempt.contract.precision not in {"f32", "f64"}
            if not attempt.rmse <= (LOW_PRECISION_TOLERANCE if low else TOLERANCE):
                wrong[str(attempt)] = attempt.error or attempt.rmse

        assert not wrong, wrong

    def test_compiled_wrong_outputs_are_noticed(self) -> None:
        """A trial accepts the outputs, and none of zeros, 5 % too large, in another order, or for other inputs."""
        faults = {}
        for attempt in self.attempts:
            if not attempt.outputs or attempt.network not in NETWORKS:
                continue
            expected = load_reference(attempt.network, attempt.batch_size)
            precision = str(self.record.settle(dict(attempt.options)).get("precision", "f32"))
            verdict = judge(expected, attempt.outputs[0], attempt.batch_size, precision)
            problem = verdict.unchecked or (verdict.check.problem if verdict.check else "no check")
            others = run_other_inputs(attempt.network, attempt.batch_size)
            accepted = find_accepted(expected, attempt.outputs[0], others, attempt.batch_size, precision)
            if problem or accepted:
                faults[str(attempt)] = problem or f"accepts {' and '.join(accepted)}"

        assert not faults, faults

    def test_compiled_program_can_be_called_again(self) -> None:
        """A second call returns the outputs of the first."""
        for attempt in self.attempts:
            assert len(attempt.outputs) == 2, f"{attempt}: {attempt.error}"
            for first, second in zip(*attempt.outputs, strict=True):
                np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-6, err_msg=str(attempt))

    def test_compiled_program_states_its_contract(self) -> None:
        """The contract has a runtime, a precision and the requested threads, of a call that waits for its outputs."""
        for attempt in self.attempts:
            contract = attempt.contract

            assert contract is not None, f"{attempt}: {attempt.error}"
            assert contract.runtime, attempt
            assert contract.precision, attempt
            assert contract.threads == THREADS, f"{attempt}: {contract}"
            assert contract.overlap >= 1, f"{attempt}: {contract}"
            assert contract.synchronised, attempt

    def test_compiled_program_tells_plain_facts(self) -> None:
        """The facts of a program are plain JSON."""
        problems = {str(attempt): attempt.facts_problem for attempt in self.attempts if attempt.facts_problem}

        assert not problems, problems

    def test_compiled_program_explains_itself(self) -> None:
        """Explanations are plain JSON; the counts under common keys are non-negative integers and consistent."""
        problems = {str(attempt): attempt.explained_problem for attempt in self.attempts if attempt.explained_problem}

        assert not problems, problems
        for attempt in self.attempts:
            counts = {name: attempt.explained[name] for name in COUNTS if name in attempt.explained}
            message = f"{attempt}: {counts}"

            assert all(type(count) is int and count >= 0 for count in counts.values()), message
            assert counts.get("nodes_before", 1) > 0, message
            assert counts.get("nodes_after", 1) > 0, message
            if "nodes_after" in counts:
                assert counts.get("nodes_fused", 0) <= counts["nodes_after"], message
                assert counts.get("fallbacks", 0) <= counts["nodes_after"], message

    def test_compiled_program_reports_its_kernels(self) -> None:
        """A profile has the seconds of each kernel in each call, and nodes that the network has; or it says why not."""
        problems = {str(attempt): attempt.profile_problem for attempt in self.attempts if attempt.profile_problem}

        assert not problems, problems
        for attempt in filter(lambda attempt: attempt.profile, self.attempts):
            nodes, kernels = attempt.profile["nodes"], attempt.profile["kernels"]

            assert kernels or attempt.profile["notes"], attempt
            for kernel in kernels:
                message = f"{attempt}: {kernel}"
                assert bool(kernel["nodes"]) == (kernel["role"] == "compute"), message
                assert all(0 <= node < len(nodes) for node in kernel["nodes"]), message
                assert [*map(len, kernel["seconds"])] == [PROFILED_CALLS] * PROFILED_ROUNDS, message

    def test_compiled_again_gives_the_same(self) -> None:
        """Another process that compiles with the first one's cache gets the same outputs: a hit after a miss."""
        recompiled = [attempt for attempt in self.attempts if attempt.again or attempt.again_error]

        assert bool(recompiled) == self.record.caches
        for attempt in recompiled:
            assert not attempt.again_error, f"{attempt}: {attempt.again_error}"
            assert attempt.facts.get("cache", "miss") == "miss", f"{attempt}: {attempt.facts}"
            assert attempt.again_facts.get("cache", "hit") == "hit", f"{attempt}: {attempt.again_facts}"
            for first, second in zip(attempt.outputs[0], attempt.again, strict=True):
                np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-6, err_msg=str(attempt))

    def test_compiled_networks_leave_nothing_elsewhere(self) -> None:
        """A compiler caches below its cache only: its children leave no file in their home or temporary folder."""
        stray = {path for attempt in self.attempts for path in attempt.stray}

        assert not stray, sorted(stray)

    def test_compiled_unknown_operator_is_refused(self) -> None:
        """A trial with an ONNX operator that the compiler lacks is unsupported, not failed."""
        attempts = [case for case in observe(self.compiler, self.accelerator) if case.network == UNKNOWN_OPERATOR]
        wrong = [attempt.error or "it compiled" for attempt in attempts if not attempt.refused]

        assert bool(attempts) == ("onnx" in self.record.forms)
        assert not wrong, wrong

    def test_compiled_onnx_needs_no_torch(self) -> None:
        """Compiling from ONNX does not import torch, whose memory would count as the compiler's."""
        wrong = [str(attempt) for attempt in self.attempts if attempt.form == "onnx" and attempt.torch_imported]

        assert not wrong, wrong
