"""The Lua of the Redis store has the shape that its readers rely on, and what looks at it sees what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.stores.redis.scripts import MODULES, STEPS

from .__main__ import FOLDER, mistakes

FILES = sorted(FOLDER.glob("*.lua"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_lua_is_small_and_knows_no_globals(path: Path) -> None:
    assert mistakes(path) == []


def test_every_file_is_a_module_or_a_step() -> None:
    assert {path.stem for path in FILES} == {*MODULES, *STEPS} - {"records"}


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("-- It.\nlocal x = 1 +\nreturn x\n", "unexpected symbol"),
        ("-- It.\nlocal function f()\n  return frist\nend\nreturn f\n", "frist is a global"),
        ("-- It.\ncounter = 1\nreturn {}\n", "counter is a global"),
        ("local x = 1\nreturn x\n", "does not say what it is for"),
        ("-- It.\nlocal x = 1\nredis.log(x)\n", "does not return what it offers"),
        ("-- It.\n" + "-- x\n" * 401 + "return {}\n", "more than 400"),
        ("-- It.\nlocal function f()\n" + "  redis.log()\n" * 80 + "end\nreturn f\n", "more than 80 lines"),
        ("-- It.\nreturn '" + "x" * 120 + "'\n", "longer than 120"),
    ],
)
def test_a_mistake_is_seen(text: str, mistake: str, tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text(text)

    assert mistake in "\n".join(mistakes(tmp_path / "a.lua"))
