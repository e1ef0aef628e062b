"""Rules are selected by name, from plugins, modules and files; those of onnxscript are rules of ngbkit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from onnxgraphs import Builder, write
from onnxscript.rewriter import RewriteRule, RewriteRuleSet
from onnxscript.rewriter.rules import common
from rewriting import build_model, count_calls
from state import share_state_dir

from ngbkit.errors import NgbkitWarning, UnknownNameError, UsageError
from ngbkit.predict import optimizer
from ngbkit.predict.optimizer import proof
from ngbkit.predict.optimizer.beam_search import Beam, search
from ngbkit.predict.optimizer.rules import RULES
from ngbkit.predict.optimizer.rules.rule_selection import select

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)

COMMON = "onnxscript.rewriter.rules.common"
SOURCE = """
from onnxscript.rewriter import RewriteRule, RewriteRuleSet


def pattern(op, x):
    return op.Relu(op.Relu(x))


def replacement(op, x):
    return op.Relu(x)


ONCE = RewriteRule(pattern, replacement, name="once")
BOTH = RewriteRuleSet([ONCE, RewriteRule(lambda op, x: op.Abs(op.Relu(x)), replacement, name="abs")])
NUMBER = 3


def build_rules():
    return [ONCE]
"""


def build_relus() -> Builder:
    build, value = Builder(), "x"
    for _ in range(2):
        value = build.conv(build.add("Relu", build.add("Relu", value)), 8)
    return build


@pytest.fixture
def once() -> RewriteRule:
    return RewriteRule(lambda op, x: op.Relu(op.Relu(x)), lambda op, x: op.Relu(x), name="once")


def test_a_foreign_rule_is_applied_at_each_site_alone(once: RewriteRule, tmp_path: Path) -> None:
    """Each match is a site; a rewriting leaves the other sites as they are, and the results too."""
    (rule,) = select([once])
    model = build_model(build_relus())
    sites = rule.sites(model)
    ir.save(model, tmp_path / "original.onnx")

    assert "once" == rule.name
    assert [2, 2] == [len(site) for site in sites]
    for site in sites:
        rewritten = rule.apply(model, site)
        ir.save(rewritten, tmp_path / "rewritten.onnx")
        assert 3 == sum(node.op_type == "Relu" for node in rewritten.graph)
        assert len(list(rewritten.graph)) == len({node.name for node in rewritten.graph})
        assert proof.measure_error(tmp_path / "original.onnx", tmp_path / "rewritten.onnx") < proof.LIMIT
    assert 4 == sum(node.op_type == "Relu" for node in model.graph)


def test_the_search_applies_foreign_rules(once: RewriteRule) -> None:
    """The search applies rules of other packages."""
    best = search(build_model(build_relus()), count_calls, [once])[0]

    assert ["once", "once"] == [name for name, _ in best.steps]
    assert 4 == best.cost


def test_a_rule_with_weights_and_a_condition_keeps_the_results(tmp_path: Path) -> None:
    """A rule that folds a BatchNorm into a convolution preserves the results."""
    build = Builder()
    value = build.conv("x", 8)
    for index in range(4):
        values = (build.generator.standard_normal(8) ** 2 + 0.1).astype(np.float32)
        build.weights.append(numpy_helper.from_array(values, f"norm{index}"))
    build.add("Relu", build.add("BatchNormalization", value, *(f"norm{index}" for index in range(4))))
    model = build_model(build)
    ir.save(model, tmp_path / "original.onnx")
    (rule,) = select(["onnxscript.rewriter.rules.common:fuse_batchnorm_into_conv_rule"])
    ir.save(rule.apply(model, rule.sites(model)[0]), tmp_path / "rewritten.onnx")

    assert ["Conv", "Relu"] == [node.op_type for node in onnx.load(tmp_path / "rewritten.onnx").graph.node]
    assert proof.measure_error(tmp_path / "original.onnx", tmp_path / "rewritten.onnx") < proof.LIMIT


def test_the_rules_that_ship_with_onnxscript_have_names() -> None:
    """A module is all of its rules; each has its own name in it."""
    names = [rule.name for rule in select([COMMON])]

    assert len(common.__all__) == len(names)
    assert f"{COMMON}:mul_by_1_rule" in names
    assert ["merge-convs", f"{COMMON}:mul_by_1_rule"] == [
        rule.name for rule in select(["merge-convs", f"{COMMON}:mul_by_1_rule"])
    ]


def test_rules_come_from_files_and_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are loaded from files and modules as objects, sets and functions."""
    file = tmp_path / "ngbkit_test_rules.py"
    file.write_text(SOURCE)
    monkeypatch.chdir(tmp_path)

    assert [f"{file}:ONCE"] == [rule.name for rule in select([f"{file}:ONCE"])]
    (both,) = select(["ngbkit_test_rules:BOTH"])
    assert "once, abs" in both.summary
    assert 1 == len(select([f"{file}:build_rules"]))
    assert 3 == len(select([f"{file}:ONCE", f"{file}:BOTH", "fold-batchnorm"]))
    assert list(RULES) == [rule.name for rule in select(["all"])]


@pytest.mark.parametrize(
    ("word", "error", "message"),
    [
        ("merge-conv", UnknownNameError, r"Did you mean merge-convs.*file\.py:NAME"),
        ("ngbkit_no_such_module:RULE", UsageError, r"no module 'ngbkit_no_such_module'"),
        ("nowhere.py:RULE", UsageError, r"nowhere\.py, which is no file"),
        ("rules.py:ONC", UnknownNameError, r"Did you mean ONCE"),
        ("rules.py:NUMBER", UsageError, r"of type int; expected a Rule, a RewriteRule"),
        ("broken.py:ONCE", UsageError, r"its module failed with ZeroDivisionError"),
    ],
)
def test_what_is_no_rule_is_an_error(
    word: str, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of an object that is no rule has the valid forms."""
    (tmp_path / "rules.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(error, match=message):
        select([word])


def test_an_object_that_is_no_rule_is_an_error() -> None:
    """An object that is no rule is refused before anything is built."""
    with pytest.raises(UsageError, match="expected a Rule, a RewriteRule"):
        optimizer.optimize("resnet18", cost=count_calls, rules=[3])


def test_two_rules_of_one_name_are_both_applied(once: RewriteRule) -> None:
    """The second has a number."""
    other = RewriteRule(lambda op, x: op.Abs(op.Abs(x)), lambda op, x: op.Abs(x), name="once")

    assert ["once", "once-2"] == [rule.name for rule in select([once, other])]
    assert ["RewriteRuleSet"] == [rule.name for rule in select([RewriteRuleSet([once, other])])]


def test_a_rule_that_fails_is_left_out_with_a_warning() -> None:
    """The search goes on with the others."""
    with pytest.warns(NgbkitWarning, match=r"the rule faulty-(find|rewrite) failed with ValueError: no luck"):
        best = search(build_model(build_relus()), count_calls, ["faulty", f"{COMMON}:successive_relu_rule"], Beam())[0]

    assert 4 == best.cost


def test_a_wrong_foreign_rule_is_found_out(tmp_path: Path) -> None:
    """The proof rejects a wrong rule of another package."""
    wrong = RewriteRule(lambda op, x: op.Relu(op.Relu(x)), lambda op, x: op.Abs(x), name="wrong")
    file = write(build_relus().model(), tmp_path / "relus.onnx")
    optimised = optimizer.optimize(str(file), cost=count_calls, rules=[wrong], top=1)

    assert "wrong result" in optimised.tried[0].outcome.problem
    assert optimised.chosen is None
