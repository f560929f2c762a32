"""Which app or store a command is about, and where that was said: argument, environment, pyproject.toml."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import click

from paceline.app import App
from paceline.errors import ConfigError, PacelineError
from paceline.stores import open_store
from paceline.stores.address import without_password
from paceline.stores.interface import Store

SETTINGS = ("app", "store", "namespace")


class CannotImport(ConfigError):
    """The user's module raised while it was imported; the text is his traceback."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it was said."""

    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Target:
    """What a command is about: a store, and the app it belongs to where one was named."""

    store: Store
    app: App | None
    settings: dict[str, Setting]

    @property
    def desk(self) -> App:
        """An app that declares nothing: looking must not change a limit."""
        return App(self.store)


def find_settings(given: dict[str, str | None]) -> dict[str, Setting]:
    """The settings by name: what was given on the command line first, then the environment, then pyproject.toml."""
    found: dict[str, Setting] = {}
    path, project = _project()
    for name in SETTINGS:
        value = given.get(name)
        variable = f"PACELINE_{name.upper()}"
        if value:
            found[name] = Setting(value, "command line")
        elif os.environ.get(variable):
            found[name] = Setting(os.environ[variable], f"environment {variable}")
        elif project.get(name):
            found[name] = Setting(str(project[name]), f"[tool.paceline] in {path}")
    return found


def find_target(given: dict[str, str | None], makes: bool = False) -> Target:
    """The app or the store that was named; of two that were named in different places the nearer one.

    `makes`: a store that does not exist yet may be made. Whoever only looks mistyped its name.
    """
    settings = find_settings(given)
    app, store = settings.get("app"), settings.get("store")
    if app is not None and store is not None:
        if _nearness(app.source) == _nearness(store.source):
            shown = without_password(store.value)
            raise ConfigError(
                f"app={app.value!r} and store={shown!r} are both given ({app.source}, {store.source}): "
                "expected one of them"
            )
        nearest = min((app, store), key=lambda each: _nearness(each.source))
        app, store = (app, None) if nearest is app else (None, store)
    if store is not None:
        namespace = settings.get("namespace")
        options: dict[str, Any] = {"namespace": "default" if namespace is None else namespace.value}
        if store.value.startswith("postgres") and not makes:
            options["migrate"] = False
        opened = open_store(store.value, **options)
        path = getattr(opened, "path", None)
        if path is not None and not makes and not os.path.exists(path):
            raise ConfigError(
                f"store={store.value!r} is wrong: there is no file {str(path)!r}; it is made by the first job",
                option="store",
                value=store.value,
            )
        return Target(opened, None, settings)
    if app is None:
        raise ConfigError(
            "no app and no store: give -a jobs:app or --store sqlite:///jobs.db, set PACELINE_APP or PACELINE_STORE, "
            'or write app = "jobs:app" under [tool.paceline] in pyproject.toml'
        )
    loaded = load_app(app.value)
    _check_namespace(settings, loaded)
    return Target(loaded.store, loaded, settings)


def _check_namespace(settings: dict[str, Setting], app: App) -> None:
    """An app has a namespace of its own: whoever names another one must not change the jobs of this one."""
    named, own = settings.get("namespace"), app.store.namespace
    if named is None or named.value == own or _nearness(named.source) > _nearness(settings["app"].source):
        return
    raise ConfigError(
        f"namespace={named.value!r} ({named.source}) is wrong beside app={settings['app'].value!r}, whose namespace is "
        f"{own!r}: say it in App(…, namespace={named.value!r}), or name the store (--store URL) instead of the app",
        option="namespace",
        value=named.value,
    )


def load_app(name: str) -> App:
    """The app that `module:attribute` names; the attribute may be left out, and a function that makes it is called."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(
            f"app={name!r} is wrong: expected module:attribute such as jobs:app", option="app", value=name
        )
    module = _import(module_name, name)
    found = _attribute(module, attribute) if attribute else _only_app(module)
    if not isinstance(found, App) and isinstance(found, Callable):  # type: ignore[arg-type]  # a factory
        found = _made_by(found, name)
    if not isinstance(found, App):
        raise ConfigError(
            f"app={name!r} is wrong: it is {type(found).__name__} {found!r:.80}, expected a paceline.App",
            option="app",
            value=name,
        )
    return found


def store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--app`, `--store` and `--namespace`."""
    # The environment is read by find_settings, which says so.
    for option in (
        click.option("--namespace", metavar="NAME", allow_from_autoenv=False, help="The namespace in the store."),
        click.option("--store", metavar="URL", allow_from_autoenv=False, help="The store, without any app."),
        click.option("-a", "--app", metavar="MODULE:APP", allow_from_autoenv=False, help="The app, such as jobs:app."),
    ):
        function = option(function)
    return function


def _nearness(source: str) -> int:
    return ("command line" not in source) + ("[tool.paceline]" in source)


def _project() -> tuple[Path | None, dict[str, Any]]:
    for folder in (Path.cwd(), *Path.cwd().parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            try:
                tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise ConfigError(f"{path} cannot be read: {error}") from error
            ours = tools.get("paceline", {}) if isinstance(tools, dict) else {}
            if not isinstance(ours, dict):
                raise ConfigError(f"[tool.paceline] in {path} is wrong: it is {ours!r}, expected a table")
            return path, ours
    return None, {}


def _import(module_name: str, name: str) -> ModuleType:
    what = f"the module {module_name!r} could not be imported"
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"app={name!r} is wrong: there is no module {error.name!r} here ({os.getcwd()}) or on the Python path",
                option="app",
                value=name,
            ) from error
        raise _failed(what, error) from error
    except Exception as error:
        raise _failed(what, error) from error
    except SystemExit as error:
        raise CannotImport(
            f"{what}: it ends the program (exit code {error.code}); "
            'what it does as a program belongs below if __name__ == "__main__":'
        ) from error


def _made_by(factory: Callable[[], Any], name: str) -> Any:
    try:
        return factory()
    except Exception as error:
        raise _failed(f"the function {name!r} could not make the app", error) from error


def _failed(what: str, error: Exception) -> CannotImport:
    """His traceback begins where his code does: our frames and those of the import system say nothing."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and (
        "importlib" in trace.tb_frame.f_code.co_filename or trace.tb_frame.f_code.co_filename == __file__
    ):
        trace = trace.tb_next
    if isinstance(error, PacelineError) and trace is not None:
        # Our own errors say what to do; of the way there only his line helps.
        where = traceback.extract_tb(trace, limit=1)[0]
        return CannotImport(f"{what} ({where.filename}, line {where.lineno}): {error}")
    text = "".join(traceback.format_exception(type(error), error, trace)).rstrip()
    return CannotImport(f"{what}:\n{text}")


def _attribute(module: ModuleType, attribute: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            apps = _apps(module)
            hint = f"; it has {', '.join(apps)}" if apps else "; it has no app at all"
            raise ConfigError(f"module {module.__name__!r} has no {attribute!r}{hint}", option="app", value=attribute)
        found = getattr(found, part)
    return found


def _only_app(module: ModuleType) -> Any:
    if isinstance(getattr(module, "app", None), App):
        return module.app
    apps = _apps(module)
    if len(apps) != 1:
        what = f"several apps ({', '.join(apps)}): name one" if apps else "no app: make one with app = App(...)"
        raise ConfigError(f"module {module.__name__!r} has {what}", option="app", value=module.__name__)
    return getattr(module, apps[0])


def _apps(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, App)]
