"""The words of a command line: read, turned into a sweep, and written again."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from IPython.core.magic_arguments import MagicArgumentParser

from ngbkit import options
from ngbkit.api import Sweep
from ngbkit.commands import arguments
from ngbkit.commands.parser import Parser, parse
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep import feeding, parsing


def parser(kind: type[argparse.ArgumentParser] = Parser) -> argparse.ArgumentParser:
    shell = kind("ngbench")
    for argument in (arguments.WORKLOADS, *arguments.SWEEP):
        shell.add_argument(*argument.flags, **argument.keywords)
    return shell


def sweep_of(line: str) -> Sweep:
    return arguments.to_sweep(parse(parser(), parsing.split_words(line)))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("64,96", [64, 96]),
        ("1:6", [1, 2, 3, 4, 5, 6]),
        ("1:9:2", [1, 3, 5, 7, 9]),
        ("1:8:3", [1, 4, 7]),
        ("6:2:-2", [6, 4, 2]),
        ("0.5:1:0.25", [0.5, 0.75, 1.0]),
        ("0.1:0.3:0.1", [0.1, 0.2, pytest.approx(0.3)]),
        ("1, 4:5", [1, 4, 5]),
        ("7:7", [7]),
    ],
)
def test_numbers_are_lists_and_ranges_with_both_ends(text: str, numbers: list[float]) -> None:
    """Numbers are parsed from lists and ranges with both ends, and whole ones stay integers."""
    result = parsing.parse_numbers("depth", text)

    assert numbers == result
    assert [type(number) for number in result] == [float if "." in text else int] * len(result)


@pytest.mark.parametrize("text", ["", "a", "1,", "1:", "6:1", "1:9:0", "1:2:3:4", "nan", "1:inf", "1:1e12", 400 * "9"])
def test_numbers_that_do_not_read_are_refused(text: str) -> None:
    """The error says what came, what it was for, and how to write it."""
    with pytest.raises(UsageError, match=r"invalid depth: got .*; expected values such as 64,96, or a range"):
        parsing.parse_numbers("depth", text)


def test_factors_are_read_by_name() -> None:
    """Each factor is parsed from NAME=VALUES."""
    result = parsing.parse_factors(["width=64,96", "depth = 1:3"])

    assert {"width": [64, 96], "depth": [1, 2, 3]} == result


@pytest.mark.parametrize(("texts", "message"), [(["width"], "--factor width=64,96"), (["w=1", "w=2"], "got w twice")])
def test_factors_that_do_not_read_are_refused(texts: list[str], message: str) -> None:
    """An invalid factor is refused, so that no value is guessed or dropped."""
    with pytest.raises(UsageError, match=message):
        parsing.parse_factors(texts)


@pytest.mark.parametrize(("text", "shape"), [("3,224,224", (3, 224, 224)), ("(16,)", (16,)), ("4", (4,))])
def test_shapes_are_read(text: str, shape: tuple[int, ...]) -> None:
    """A shape is parsed with or without the brackets of Python."""
    assert shape == parsing.parse_shape(text)


@pytest.mark.parametrize("text", ["", "3,0", "3,-1", "3x224", "a", "²", "٣", 5000 * "9"])
def test_shapes_that_do_not_read_are_refused(text: str) -> None:
    """A shape is of one sample, and positive."""
    with pytest.raises(UsageError, match="expected the shape of one sample"):
        parsing.parse_shape(text)


@pytest.mark.parametrize("text", ["a", "=1", "a=²", "a=-1", "a=" + 5000 * "9"])
def test_axes_that_do_not_read_are_refused(text: str) -> None:
    """Invalid axes are refused, including digits of other scripts and very long numbers."""
    with pytest.raises(UsageError, match="expected INPUT=DIMENSION"):
        feeding.parse_batch_axes([text])


def test_a_long_text_names_no_file() -> None:
    """A name that is too long for the file system is the error of whoever reads it."""
    assert {"net": 5000 * "x"} == feeding.parse_inputs(["net=" + 5000 * "x"])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("resnet18  -b 1", ["resnet18", "-b", "1"]),
        ('-c a,openvino{"hint":"throughput"}', ["-c", 'a,openvino{"hint":"throughput"}']),
        ('-c openvino{"hint": "throughput"} x', ["-c", 'openvino{"hint": "throughput"}', "x"]),
        ("""-c 'openvino{"hint":"throughput"}'""", ["-c", 'openvino{"hint":"throughput"}']),
        ('"my net.onnx" x', ["my net.onnx", "x"]),
        ('a{"b":{"c":1}} d', ['a{"b":{"c":1}}', "d"]),
        ("", []),
    ],
)
def test_a_line_is_split_into_words(line: str, expected: list[str]) -> None:
    """Options in braces need no quotes, and bear those of a shell."""
    assert expected == parsing.split_words(line)


@pytest.mark.parametrize("line", ["resnet18 'a", 'x "', 'openvino{"hint"'])
def test_a_quote_that_is_not_closed_is_refused(line: str) -> None:
    """Nothing of the line is dropped silently."""
    with pytest.raises(UsageError, match=r"is never closed"):
        parsing.split_words(line)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("openvino{hint:throughput}", 'openvino{"hint":"throughput"}'),
        ("openvino{hint=throughput,precision=f32}", 'openvino{"hint":"throughput","precision":"f32"}'),
        ("resnet18{img_size:160}", 'resnet18{"img_size":160}'),
        ("net{rate:1e-3,flag:true}", 'net{"rate":1e-3,"flag":true}'),
        ('openvino{"hint":"throughput"}', 'openvino{"hint":"throughput"}'),
        ("identity", "identity"),
    ],
)
def test_quotes_that_a_shell_took_are_put_back(text: str, label: str) -> None:
    """The parser restores the quotes of a label that a shell has removed."""
    assert label == parsing.restore_quotes(text)


def test_a_line_becomes_a_sweep() -> None:
    """Every option arrives, wherever the workloads stand."""
    result = sweep_of(
        'blocks.conv -c identity,openvino{"hint":"throughput"} -c tvm -b 1,2 -b 4 -r 7 blocks.mha '
        "--factor width=64,96 --factor depth=1:3 --threads 2 --timeout 9.5 --seed 3"
    )

    assert ("conv", "mha") == tuple(workload.name for workload in result.workloads)
    assert ("identity", 'openvino{"hint":"throughput"}', "tvm") == result.compilers
    assert ((1, 2, 4), 7, 2, 9.5, 3) == (
        result.batch_sizes,
        result.repeats,
        result.threads,
        result.timeout_s,
        result.seed,
    )
    assert {"width": (64, 96), "depth": (1, 2, 3)} == result.factors


def test_what_is_not_said_is_as_by_default() -> None:
    """The defaults live in one place, which is not the command line."""
    assert Sweep(["resnet18"]) == sweep_of("resnet18")


@pytest.mark.parametrize(
    "line",
    [
        "blocks.conv --factor width=64,96 --factor depth=1:6",
        'resnet18 -c identity,openvino{"hint":"throughput","precision":"f32"} -b 1:4 -r 3 --threads 2 '
        "--timeout 7 --seed 5",
    ],
)
def test_a_sweep_becomes_its_words_again(line: str) -> None:
    """The formatted options of a sweep are parsed to the same sweep."""
    result = sweep_of(line)
    parsing = [line.split()[0], *result.to_words()]

    assert result == arguments.to_sweep(parse(parser(), parsing))


def test_ranges_are_written_as_ranges() -> None:
    """Thirty batch sizes do not fill a line."""
    assert ["-c", "identity", "-b", "1:30", "-r", "100"] == sweep_of("resnet18 -b 1:30").to_words()


@pytest.mark.parametrize("kind", [Parser, MagicArgumentParser])
def test_the_table_makes_the_parsers_of_the_magics_and_of_the_shell(kind: type[argparse.ArgumentParser]) -> None:
    """Both understand the same words."""
    args = parse(parser(kind), ["resnet18", "-c", "identity", "--devices", "cpu", "net.onnx"])

    assert (["resnet18", "net.onnx"], ["identity"], ["cpu"]) == (args.workloads, args.compilers, args.devices)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("resnet18 --batchsize 1", "unknown option '--batchsize'. Did you mean --batch-sizes"),
        ("resnet18 -c opnvino", "Did you mean openvino"),
        ("resnet18 -d orin", "unknown device 'orin'. Expected cpu"),
        ("resnet81", "Did you mean resnet18"),
        ("resnet18 -b 0", "invalid batch size: got 0"),
        ("resnet18 -b -1", "invalid batch size: got -1"),
        ("resnet18 -r 1.5", "invalid int value: '1.5'"),
        ("", "invalid workloads: got none"),
    ],
)
def test_bad_words_get_a_clear_error(line: str, message: str) -> None:
    """The error of an invalid argument has its value, the valid ones, and the nearest names."""
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        sweep_of(line)


def test_braces_that_a_shell_expanded_are_recognised() -> None:
    """bash makes two words of one label with two options; the error says to quote it."""
    with pytest.raises(UsageError, match=r"without braces: .* Quote them"):
        sweep_of("resnet18 -c openvinohint:throughput")


def test_zero_is_a_value() -> None:
    """Zero is a value, not an unused argument or the default."""
    with options.set_options(seed=5):
        assert 0 == sweep_of("resnet18 --seed 0").seed
    with pytest.raises(UsageError, match="invalid repeats: got 0; expected an integer >= 1"):
        sweep_of("resnet18 -r 0")


def test_a_word_too_many_is_refused() -> None:
    """A command without workloads takes no further word."""
    with pytest.raises(UsageError, match="unexpected argument 'extra'"):
        parse(Parser("ngbkit runs"), ["extra"])


def test_each_device_gets_an_engine_of_the_users_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each device gets an engine of the user's cluster, in the order of engines."""

    class Client:
        ids = (4, 7)

        def __getitem__(self, number: int) -> int:
            return number

    monkeypatch.setattr("ngbkit.cluster.attach._connect", lambda _: Client())
    result = arguments.to_engines("mine", ["a", "b"])

    assert {"a": 4, "b": 7} == {label: engine.view for label, engine in result.items()}
    assert {} == arguments.to_engines(None, ["a"])
    with pytest.raises(UsageError, match="got 2 engine"):
        arguments.to_engines("mine", ["a", "b", "c"])


def test_devices_of_the_users_cluster_may_have_any_label(tmp_path: Path) -> None:
    """A device of the user's cluster has any label, even one that no file configures."""
    args = parse(parser(), ["resnet18", "-d", "orin", "--cluster", str(tmp_path)])

    assert ("orin",) == arguments.to_sweep(args).devices


def test_unknown_options_name_the_nearest() -> None:
    """An unknown option raises an UnknownNameError with its name."""
    with pytest.raises(UnknownNameError) as raised:
        parse(parser(), ["--repeat-s=3"])

    assert ("option", "--repeat-s") == (raised.value.kind, raised.value.name)


def test_how_long_to_measure_is_said_by_repeats_or_by_a_precision() -> None:
    """A sweep has repeats or a precision, and its options format either."""
    line = "blocks.conv --factor width=8 --factor depth=1 --precision 2% --max-seconds 30"
    sweep = sweep_of(line)

    assert (None, 0.02, 30.0) == (sweep.repeats, sweep.precision, sweep.max_seconds)
    assert "--precision 0.02 --max-seconds 30" in " ".join(sweep.to_words())
    assert sweep == sweep_of("blocks.conv " + " ".join(sweep.to_words()))
    with pytest.raises(UsageError, match="the one is a number of samples, the other says when to stop"):
        sweep_of("resnet18 -r 10 --precision 2%")
