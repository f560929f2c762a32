"""A task's signature: a call is checked when it is enqueued, so that the handler gets exactly what was given."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from paceline.annotations import locals_of_caller, resolved
from paceline.argument_types import JSON, Misfit, Plan, plan_for
from paceline.errors import ConfigError, WrongArguments
from paceline.results import Result
from paceline.text import show

_NAMES = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PLACES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Arguments:
    """What the parameters of one function take; annotations are resolved one by one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._signature = _signature_of(function)
        self._function = function
        self._plans: dict[str, Plan] = {}
        self._late: dict[str, inspect.Parameter] = {}
        """Parameters whose annotation names something that may be defined later."""
        local = locals_of_caller()
        for parameter in self._signature.parameters.values():
            self._plan(parameter, local)
        self.result = Result(function, self._signature.return_annotation, local)
        self._set_places()

    def _set_places(self) -> None:
        parameters = list(self._signature.parameters.values())
        places = [each for each in parameters if each.kind in _PLACES]
        self._places = [self._plans[each.name] for each in places]
        self._names = {each.name: self._plans[each.name] for each in parameters if each.kind in _NAMES}
        self._more = next((self._plans[each.name] for each in parameters if each.kind is each.VAR_POSITIONAL), None)
        self._others = next((self._plans[each.name] for each in parameters if each.kind is each.VAR_KEYWORD), None)
        required = {each.name for each in parameters if each.default is each.empty and each.kind in {*_NAMES, *_PLACES}}
        taken = [frozenset(each.name for each in places[:count]) for count in range(len(places) + 1)]
        self._taken = taken
        self._needed = [frozenset(required - names) for names in taken]

    def _plan(self, parameter: inspect.Parameter, local: Mapping[str, Any], *, last: bool = False) -> None:
        """Decide how values of a parameter travel; what nobody could convert is refused here."""
        name = parameter.name
        hint, unresolved = resolved(self._function, parameter.annotation, local)
        if unresolved is None:
            try:
                self._plans[name] = plan_for(name, hint)
            except NameError as error:
                unresolved = error
            except TypeError as error:
                text = f"parameter {name!r} has an annotation that cannot be converted: {error}"
                if parameter.default is parameter.empty and not last:
                    raise ConfigError(text, option=name, value=hint) from error
                # Whoever leaves it out gets the default; whoever gives it is told.
                self._plans[name] = Plan(name, refused=text)
        if unresolved is not None:
            shown = parameter.annotation if isinstance(parameter.annotation, str) else repr(parameter.annotation)
            why = f"its annotation {shown!r} cannot be resolved when the program runs ({unresolved})"
            self._plans[name] = JSON(name, f"{why}: import it for real, not for type checkers only")
            if not last:
                self._late[name] = parameter

    def _resolve_late(self) -> None:
        late, self._late = self._late, {}
        for parameter in late.values():
            self._plan(parameter, {}, last=True)
        self._set_places()

    # a call on its way

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The call as it is written; `WrongArguments` or `NotSerializable` when it could not arrive as it is."""
        if self._late:
            self._resolve_late()
        self._check_fit(args, kwargs, WrongArguments)
        places, names = self._places, self._names
        packed = [
            value if type(value) is plan.packed else plan.pack(value) for plan, value in zip(places, args, strict=False)
        ]
        if len(args) > len(places):
            assert self._more is not None
            packed += [self._more.pack(value) for value in args[len(places) :]]
        others = self._others
        named = {name: (names.get(name) or others).pack(value) for name, value in kwargs.items()}  # type: ignore[union-attr]
        return {"args": packed, "kwargs": named}

    def unpack(self, data: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments that a job carries, as the function takes them; `Misfit` when it does not."""
        if self._late:
            self._resolve_late()
        if not (isinstance(data, dict) and isinstance(data.get("args"), list) and isinstance(data.get("kwargs"), dict)):
            raise Misfit('expected {"args": […], "kwargs": {…}}')
        args, kwargs = data["args"], data["kwargs"]
        self._check_fit(args, kwargs, Misfit)
        places, names = self._places, self._names
        unpacked = [
            value if type(value) is plan.unpacked else plan.unpack(value)
            for plan, value in zip(places, args, strict=False)
        ]
        if len(args) > len(places):
            assert self._more is not None
            unpacked += [self._more.unpack(value) for value in args[len(places) :]]
        others = self._others
        if not kwargs:
            return unpacked, kwargs
        named = {name: (names.get(name) or others).unpack(value) for name, value in kwargs.items()}  # type: ignore[union-attr]
        return unpacked, named

    def _check_fit(self, args: typing.Sequence[Any], kwargs: Mapping[str, Any], error: type[Exception]) -> None:
        """Whether the function could be called so; the usual case without the help of `inspect`, which is slow."""
        count = len(args)
        if count <= len(self._places):
            names = kwargs.keys()
            if self._needed[count] <= names and names <= self._names.keys() and names.isdisjoint(self._taken[count]):
                return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as problem:
            raise error(str(problem)) from None


def _signature_of(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:  # written in C, most often
        why = (
            f"task={show(function)} is wrong: its parameters are not known ({error}); wrap it in a function of your own"
        )
        raise ConfigError(why, option="task", value=function) from error
