"""Kinds as people type them: `100/min`, `60 per 1m, 5 at once` as shown, `Rate(100, per="1m")` as in code."""

from __future__ import annotations

import ast
import re
from typing import Any

import click

from paceline.errors import ConfigError, PacelineError
from paceline.limits import AllOf, Concurrency, Delay, EvenlySpaced, Kind, Rate, Unlimited

KINDS = {each.__name__: each for each in (Rate, Concurrency, Delay, EvenlySpaced, Unlimited, AllOf)}
EXPECTED = (
    'a kind such as 100/min, "60 per 1m, 5 at once", "Rate(100, per=\'1m\') & Concurrency(5)" or "Delay(\'50ms\')"'
)

_AT_ONCE = re.compile(r"([0-9]+) at once")
_APART = re.compile(r"(.+) apart")
_EVENLY = re.compile(r"([0-9]+)(?:\s*/\s*|\s+per\s+)(.+) evenly")


def parse_kind(text: str) -> Kind:
    """The kind that a text says. Only kinds and plain values are read, nothing is run."""
    try:
        if "(" not in text:
            parts = [_from_words(part.strip()) for part in text.split(",")]
            return parts[0] if len(parts) == 1 else AllOf(*parts)
        tree = ast.parse(text.strip(), mode="eval")
        if _is_a_kind(tree.body):
            return _kind(tree.body)
        return Rate(text)
    except PacelineError:
        raise
    except SyntaxError:
        return Rate(text)  # "100 per minute" is no Python; what is no rate either says so itself
    except (ValueError, TypeError) as error:
        raise ConfigError(f"kind={text!r} is wrong: {error}; expected {EXPECTED}", option="kind", value=text) from error


def _from_words(text: str) -> Kind:
    """One part as `status` and `limits` show it."""
    if text == "no limit":
        return Unlimited()
    if found := _AT_ONCE.fullmatch(text):
        return Concurrency(int(found[1]))
    if found := _EVENLY.fullmatch(text):
        return EvenlySpaced(int(found[1]), per=found[2])
    if found := _APART.fullmatch(text):
        return Delay(found[1])
    return Rate(text)


def merge(old: Kind, new: Kind) -> tuple[Kind, list[Kind]]:
    """The new parts and those of the old kind that they do not speak of; and which these are.

    A part takes the place of the old parts of its sort: slots, gaps, or starts in a time. Of several such times it
    takes the place of the one of its own length, where there is one. No limit at all takes the place of everything.
    """
    given = list(new.parts())
    if not given:
        return new, []
    kept: list[Kind] = [part for part in old.parts() if not any(_replaces(part, each, old) for each in given)]
    return (AllOf(*given, *kept) if len(given) + len(kept) > 1 else new), kept


def _sort(part: Kind) -> str:
    if isinstance(part, Rate | EvenlySpaced):
        return "starts"
    return "slots" if isinstance(part, Concurrency) else "gap"


def _replaces(part: Kind, given: Kind, old: Kind) -> bool:
    if _sort(part) != _sort(given):
        return False
    lengths = {each.per for each in old.parts() if isinstance(each, Rate | EvenlySpaced)}
    if isinstance(part, Rate | EvenlySpaced) and isinstance(given, Rate | EvenlySpaced) and given.per in lengths:
        return part.per == given.per
    return True


class KindType(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """A kind on the command line."""

    name = "kind"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Kind:
        try:
            return parse_kind(value)
        except PacelineError as error:
            self.fail(str(error), param, ctx)


def _is_a_kind(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return True
    return isinstance(node, ast.Call)


def _kind(node: ast.expr) -> Kind:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return _kind(node.left) & _kind(node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        kind = KINDS.get(node.func.id)
        if kind is None:
            raise ValueError(f"there is no kind {node.func.id!r}, only {', '.join(KINDS)}")
        make: Any = kind
        made: Kind = make(
            *(_value(each) for each in node.args), **{str(each.arg): _value(each.value) for each in node.keywords}
        )
        return made
    raise ValueError("it is no kind")


def _value(node: ast.expr) -> Any:
    return _kind(node) if _is_a_kind(node) else ast.literal_eval(node)
