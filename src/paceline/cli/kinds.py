"""Kinds as people type them: `Rate(100, per="1m") & Concurrency(5)`, or just `100/min`."""

from __future__ import annotations

import ast
from typing import Any

import click

from paceline.errors import ConfigError, PacelineError
from paceline.limits import AllOf, Concurrency, Delay, EvenlySpaced, Kind, Rate, Unlimited

KINDS = {each.__name__: each for each in (Rate, Concurrency, Delay, EvenlySpaced, Unlimited, AllOf)}
EXPECTED = "a kind such as 100/min, \"Rate(100, per='1m') & Concurrency(5)\" or \"Delay('50ms')\""


def parse_kind(text: str) -> Kind:
    """The kind that a text says. Only kinds and plain values are read, nothing is run."""
    try:
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
