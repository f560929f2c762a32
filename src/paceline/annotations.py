"""The type that an annotation stands for, resolved on its own, so that one that is unknown concerns only itself."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any


def locals_of_caller() -> Mapping[str, Any]:
    """The names of the function in which a task is made: its annotations may speak of classes that exist only there."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("paceline."):
        frame = frame.f_back
    return {} if frame.f_locals is frame.f_globals else frame.f_locals


def resolved(function: Callable[..., Any], annotation: Any, local: Mapping[str, Any]) -> tuple[Any, Exception | None]:
    """The type that one annotation stands for, or why nobody knows."""
    if annotation is inspect.Parameter.empty:
        return Any, None
    function = inspect.unwrap(function)
    while hasattr(function, "func"):
        function = function.func
    space = getattr(function, "__globals__", None) or getattr(type(function).__call__, "__globals__", {})
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, dict(space), dict(local), include_extras=True)["it"], None
    except Exception as error:
        return None, error
