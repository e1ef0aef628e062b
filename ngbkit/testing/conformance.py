"""The suite that every compiler passes."""

from __future__ import annotations

import os
import re
from typing import get_args

import numpy as np
import pytest

from ngbkit.compilers.base import Compiler, Form
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.testing.child import THREADS, UNKNOWN_OPERATOR, resolve
from ngbkit.testing.observation import Attempt, observe

TOLERANCE = 1e-4
# bf16 keeps 8 bits; a reordered output or a dropped weight is an error of order 1.
LOW_PRECISION_TOLERANCE = 5e-2
COUNTS = ("nodes_before", "nodes_after", "nodes_fused", "fallbacks", "graph_breaks")


class CompilerConformance:
    """The suite that every compiler passes; subclass it in a test module, and set `compiler`.

    Where the compiler cannot work on this machine, only its record and the reason that it gives are tested.

    Attributes
    ----------
    compiler : str
        The name of its entry point, or ``"package.module:ATTRIBUTE"``.
    accelerator : str
        What to compile for: ``"cpu"``, or ``"cuda"``.
    required : bool
        Whether the suite fails under ``NGBKIT_REQUIRE_ALL=1`` on a machine without the compiler's packages. False for a
        compiler whose packages are not to be had everywhere.
    """

    compiler: str
    accelerator: str = "cpu"
    required: bool = True

    def __init_subclass__(cls) -> None:
        """Keep the tests that mean something on this machine, rather than skip the others one by one."""
        super().__init_subclass__()
        tests = [name for name in vars(CompilerConformance) if name.startswith("test_")]
        if resolve(cls.compiler).unavailable(cls.accelerator):
            unwanted = [name for name in tests if name.startswith("test_compiled_")]
        else:
            unwanted = ["test_says_why_it_is_unavailable"]
        for name in unwanted:
            setattr(cls, name, None)

    @property
    def record(self) -> Compiler:
        """The compiler under test."""
        return resolve(self.compiler)

    @property
    def attempts(self) -> list[Attempt]:
        """What was observed of the networks that any compiler should know, but for choices that it refuses here."""
        known = [one for one in observe(self.compiler, self.accelerator) if one.network != UNKNOWN_OPERATOR]
        return [attempt for attempt in known if not (attempt.options and attempt.refused)]

    def test_record_is_complete(self) -> None:
        """The record says what the compiler is, what it compiles from, what it needs and how to get that."""
        record = self.record

        assert record.name
        assert record.summary
        assert record.packages
        assert record.install
        assert record.forms
        assert set(record.forms) <= set(get_args(Form)), record.forms

    def test_options_are_documented(self) -> None:
        """Every option has a line of help, and its default is among its choices."""
        for name, option in self.record.options.items():
            assert option.help, name
            assert not option.choices or option.default in option.choices, name

    def test_unknown_option_is_refused(self) -> None:
        """An option that does not exist is refused, and the nearest one that does is offered."""
        for name in self.record.options:
            with pytest.raises(UnknownNameError, match=rf"Did you mean .*{re.escape(name)}"):
                self.record.settle({f"{name}x": 1})
        with pytest.raises(UnknownNameError, match=f"unknown option of {re.escape(self.record.name)}"):
            self.record.settle({"nothing like any of them": 1})

    def test_unfit_value_is_refused(self) -> None:
        """A value that an option does not take is refused, and the message says what is valid."""
        for name in self.record.options:
            with pytest.raises(UsageError, match="does not fit; valid: "):
                self.record.settle({name: ["no option takes a list"]})

    def test_says_why_it_is_unavailable(self) -> None:
        """A compiler that cannot work here says what is missing, and the command that brings it if it is a package."""
        record = self.record
        missing, reason = record.missing(), record.unavailable(self.accelerator)
        must_be_here = self.required and os.environ.get("NGBKIT_REQUIRE_ALL") == "1"

        assert reason
        assert not (missing and must_be_here), reason
        assert not missing or all(part in reason for part in (*missing, record.install)), reason

    def test_compiled_networks_compute_the_same_function(self) -> None:
        """Outputs fetched right after the first call are the float64 reference's, in its order, at each batch size."""
        plain = [attempt for attempt in self.attempts if not attempt.options]
        wrong = {str(attempt): attempt.error or attempt.rmse for attempt in plain if not attempt.rmse <= TOLERANCE}

        assert plain
        assert not wrong, wrong

    def test_compiled_options_compute_the_same_function(self) -> None:
        """Every choice of every option compiles, and is right to within the precision that its contract admits.

        A choice that is not for this accelerator may be refused; an option all of whose choices are is for another.
        """
        wrong = {}
        for attempt in self.attempts:
            low = attempt.contract is not None and attempt.contract.precision not in {"f32", "f64"}
            if not attempt.rmse <= (LOW_PRECISION_TOLERANCE if low else TOLERANCE):
                wrong[str(attempt)] = attempt.error or attempt.rmse

        assert not wrong, wrong

    def test_compiled_program_can_be_called_again(self) -> None:
        """A second call gives what the first gave."""
        for attempt in self.attempts:
            assert len(attempt.outputs) == 2, f"{attempt}: {attempt.error}"
            for first, second in zip(*attempt.outputs, strict=True):
                np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-6, err_msg=str(attempt))

    def test_compiled_program_states_its_contract(self) -> None:
        """The contract names runtime, precision and the threads asked for, of a call that waits for its outputs."""
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
        """What a program explains is plain JSON; counts that go by a common name are whole, and fit together."""
        problems = {str(attempt): attempt.explained_problem for attempt in self.attempts if attempt.explained_problem}

        assert not problems, problems
        for attempt in self.attempts:
            counts = {name: attempt.explained[name] for name in COUNTS if name in attempt.explained}
            said = f"{attempt}: {counts}"

            assert all(type(count) is int and count >= 0 for count in counts.values()), said
            assert counts.get("nodes_before", 1) > 0, said
            assert counts.get("nodes_after", 1) > 0, said
            if "nodes_after" in counts:
                assert counts.get("nodes_fused", 0) <= counts["nodes_after"], said
                assert counts.get("fallbacks", 0) <= counts["nodes_after"], said

    def test_compiled_again_gives_the_same(self) -> None:
        """Another process that compiles with the cache of the first gets the same outputs, and says that it hit."""
        kept = [attempt for attempt in self.attempts if attempt.again or attempt.again_error]

        assert bool(kept) == self.record.caches
        for attempt in kept:
            assert not attempt.again_error, f"{attempt}: {attempt.again_error}"
            assert attempt.again_facts.get("cache", "hit") == "hit", f"{attempt}: {attempt.again_facts}"
            for first, second in zip(attempt.outputs[0], attempt.again, strict=True):
                np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-6, err_msg=str(attempt))

    def test_compiled_networks_leave_nothing_elsewhere(self) -> None:
        """What a compiler keeps is in its cache: its children leave no file in their home or among temporary files."""
        stray = {path for attempt in self.attempts for path in attempt.stray}

        assert not stray, sorted(stray)

    def test_compiled_unknown_operator_is_refused(self) -> None:
        """An ONNX operator that the compiler does not know makes the trial unsupported, and not failed."""
        tried = [attempt for attempt in observe(self.compiler, self.accelerator) if attempt.network == UNKNOWN_OPERATOR]
        wrong = [attempt.error or "it compiled" for attempt in tried if not attempt.refused]

        assert bool(tried) == ("onnx" in self.record.forms)
        assert not wrong, wrong

    def test_compiled_onnx_needs_no_torch(self) -> None:
        """Compiling from ONNX does not import torch, whose memory would be reported as the compiler's."""
        wrong = [str(attempt) for attempt in self.attempts if attempt.form == "onnx" and attempt.torch_imported]

        assert not wrong, wrong
