"""A task's return annotation: what the handler returned comes back exactly so, or the job fails without another try."""

from __future__ import annotations

import collections.abc
import typing
from collections.abc import Callable, Mapping
from typing import Any

from paceline.annotations import resolved
from paceline.argument_types import Plan, plan_for
from paceline.errors import ConfigError, NotSerializable, PacelineError

_UNCHECKED = (Any, object, typing.NoReturn, typing.Never)
"""They say nothing about a result: it is kept as JSON has it."""


class Result:
    """How the results of one function travel."""

    def __init__(self, function: Callable[..., Any], annotation: Any, local: Mapping[str, Any]) -> None:
        self._function = function
        self._annotation = annotation
        self._plan: Plan | None = None
        self._type: Any = None
        self._late = self._resolve(local)

    @property
    def type(self) -> Any:
        """The type that a caller gets; None where JSON stays JSON."""
        self._resolve_late()
        return self._type

    def pack(self, value: Any) -> Any:
        """What is written as JSON for a result; `NotSerializable` when it would come back as something else."""
        self._resolve_late()
        plan = self._plan
        if plan is None or type(value) is plan.packed:
            return value
        try:
            return plan.pack(value)
        except NotSerializable:
            raise
        except PacelineError as error:
            raise NotSerializable(str(error)) from error.__cause__

    def _resolve_late(self) -> None:
        if self._late:
            self._late = False
            self._resolve({}, last=True)

    def _resolve(self, local: Mapping[str, Any], *, last: bool = False) -> bool:
        """Decide how results travel; True when the annotation names something that may be defined later."""
        hint, unresolved = resolved(self._function, self._annotation, local)
        if unresolved is not None:
            return True
        hint = _awaited(hint)
        if hint in _UNCHECKED or isinstance(hint, typing.TypeVar):
            return False
        try:
            self._plan = plan_for("result", hint)
        except NameError:
            return True
        except TypeError as error:
            text = f"the return annotation cannot be converted: {error}"
            if not last:
                raise ConfigError(text, option="return", value=hint) from error
            self._plan = Plan("result", refused=text)
        self._type = hint
        return False


def _awaited(hint: Any) -> Any:
    """A plain function may hand over something to await: its result is what that gives."""
    awaitable = typing.get_origin(hint) in (collections.abc.Awaitable, collections.abc.Coroutine)
    return typing.get_args(hint)[-1] if awaitable else hint
