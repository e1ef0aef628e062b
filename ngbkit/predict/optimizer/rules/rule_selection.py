"""The rules that a user selects: by name, as objects, from plugins, modules and files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module, util
from inspect import isroutine
from pathlib import Path
from types import ModuleType
from typing import Any

from ngbkit import registry
from ngbkit.errors import MissingDependencyError, NgbkitError, UnknownNameError, UsageError
from ngbkit.predict.optimizer.rules import RULES, Rule
from ngbkit.user_text import parse_path

ALL = "all"
"""The word for every rule of ngbkit itself."""

_EXPECTED = "a Rule, a RewriteRule, a RewriteRuleSet, a list of them, or a module that has some"


def select(rules: Iterable[Any]) -> list[Rule]:
    """Return the selected rules, each once, under names of their own.

    Parameters
    ----------
    rules
        Each a `Rule`; a ``RewriteRule`` or ``RewriteRuleSet`` of `onnxscript.rewriter`; or a word: the name of a rule
        of ngbkit, `ALL` for each of them, the name of a plugin (an entry point in the group ``ngbkit.rules``, such as
        ``"onnxscript"``) for all its rules, ``"onnxscript:mul_by_1_rule"`` for one of them, ``"package.module:NAME"``,
        or ``"file.py:NAME"``.

    Raises
    ------
    UsageError
        A word names no rule, or an object is none.
    MissingDependencyError
        The package of a plugin is not installed.
    """
    selected: dict[str, Rule] = {}
    for item in rules:
        for rule in _parse_word(item) if isinstance(item, str) else _adapt(item, _name(item)):
            if rule not in selected.values():
                name = _make_unique(rule.name, selected)
                selected[name] = rule if name == rule.name else replace(rule, name=name)
    return list(selected.values())


def _parse_word(word: str) -> Iterator[Rule]:
    if word == ALL:
        yield from RULES.values()
    elif word in RULES:
        yield RULES[word]
    else:
        place, colon, name = word.rpartition(":") if ":" in word else (word, "", "")
        module = _load(place, word)
        if not colon:
            yield from _adapt(module, word)
        else:
            yield from _adapt(_get(module, place, name), word)


def _load(place: str, word: str) -> Any:
    """Return the object of an entry point, or a module, or a file."""
    plugins = registry.list_names(registry.RULES)
    try:
        if place in plugins:
            return registry.load(registry.RULES, place)
        if place.endswith(".py"):
            return _load_file(parse_path(place))
        if ":" in word or "." in word:
            with _current_folder():
                return import_module(place)
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in ("onnxscript", "onnx"):
            raise MissingDependencyError(error.name.partition(".")[0], "predict") from error
        raise UsageError(
            f"invalid rule {word!r}: no module {error.name!r}. Name a plugin, a module of this environment or of the "
            "current folder, or a file such as rules.py:NAME."
        ) from error
    except NgbkitError:
        raise
    except Exception as error:
        raise UsageError(f"invalid rule {word!r}: its module failed with {error!r}.") from error
    hint = "The rule of a module is module:NAME, and that of a file is file.py:NAME."
    raise UnknownNameError("rule", word, [ALL, *RULES, *plugins], hint)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"invalid rule: got {path}, which is no file. Write it as file.py:NAME.")
    spec = util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _current_folder() -> Iterator[None]:
    """Import from the current folder too, where a shell's users have their modules."""
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path.remove("")


def _get(module: Any, place: str, name: str) -> Any:
    if not hasattr(module, name):
        choices = list(_list_members(module)) if isinstance(module, ModuleType) else []
        raise UnknownNameError("rule", name, choices, f"It must be in {place}.")
    return getattr(module, name)


def _adapt(item: Any, name: str) -> Iterator[Rule]:
    """Yield the rules in an object."""
    if isinstance(item, Rule):
        yield item
    elif _is_foreign(item):
        from ngbkit.predict.optimizer.rules import rewriter

        yield rewriter.adapt(item, name)
    elif isinstance(item, ModuleType):
        for member, value in _list_members(item).items():
            yield from _adapt(value, f"{name}:{member}")
    elif isinstance(item, (list, tuple)):
        for value in item:
            yield from _adapt(value, f"{name}:{_name(value)}" if _is_foreign(value) else name)
    elif isroutine(item):
        yield from _adapt(_call(item, name), name)
    else:
        raise UsageError(f"invalid rule: got {name}, of type {type(item).__name__}; expected {_EXPECTED}.")


def _list_members(module: ModuleType) -> dict[str, Any]:
    """List the public members of a module that are rules, or return them by their name's promise: ``…_rules()``."""
    names: Sequence[str] = getattr(module, "__all__", None) or [name for name in vars(module) if name[:1] != "_"]
    members = {name: getattr(module, name) for name in names}
    return {
        name: value
        for name, value in members.items()
        if isinstance(value, Rule) or _is_foreign(value) or (isroutine(value) and name.endswith("_rules"))
    }


def _call(function: Callable[[], Any], name: str) -> Any:
    try:
        return function()
    except Exception as error:
        raise UsageError(f"invalid rule {name}: as a function without arguments it failed with {error!r}.") from error


def _is_foreign(item: Any) -> bool:
    """Return whether an object is a rule of `onnxscript.rewriter`, which only the maker of such an object imports."""
    rewriter = sys.modules.get("onnxscript.rewriter")
    return rewriter is not None and isinstance(item, (rewriter.RewriteRule, rewriter.RewriteRuleSet))


def _name(item: Any) -> str:
    name = getattr(item, "name", None)
    return str(name or type(item).__name__)


def _make_unique(name: str, names: Iterable[str]) -> str:
    number, unique = 1, name
    while unique in names:
        number += 1
        unique = f"{name}-{number}"
    return unique
