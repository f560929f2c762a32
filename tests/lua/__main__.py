"""`python -m tests.lua`: the Lua of the Redis store compiles, is small, and knows no globals but the server's.

luacheck looks for more where it is installed (Debian: lua-check), and so does StyLua where npm brought it
(`npm install --prefix tests/lua`; `python -m tests.lua --write` formats).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from lupa import lua51

from .chunk import Function, Reader

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "paceline" / "stores" / "redis" / "lua"
STYLUA = Path(__file__).parent / "node_modules" / "@johnnymorganz" / "stylua"
LONGEST_FILE, LONGEST_FUNCTION, LONGEST_LINE = 400, 80, 120
LIBRARIES = ("require", "redis", "cmsgpack", "struct", "string", "table", "math")
FUNCTIONS = ("ipairs", "pairs", "next", "type", "tonumber", "tostring", "unpack", "error", "pcall", "setmetatable")
KNOWN = frozenset(LIBRARIES + FUNCTIONS)


def compiled(path: Path) -> Function:
    """The chunk of a file; a mistake in its syntax is an error."""
    lua = lua51.LuaRuntime(encoding=None)
    dump = lua.eval(b"function(text) return string.dump(assert(loadstring(text, '=chunk'))) end")
    return Reader(dump(path.read_bytes())).function()


def mistakes(path: Path) -> list[str]:
    """What is wrong with one file."""
    text = path.read_text()
    lines = text.splitlines()
    try:
        chunk = compiled(path)
    except lua51.LuaError as error:
        return [f"{path.name}: {error}"]
    found = [] if len(lines) <= LONGEST_FILE else [f"{path.name} has {len(lines)} lines, more than {LONGEST_FILE}"]
    found += [
        f"{path.name}:{n} is longer than {LONGEST_LINE}" for n, line in enumerate(lines, 1) if len(line) > LONGEST_LINE
    ]
    found += [] if text.startswith("-- ") else [f"{path.name} does not say what it is for"]
    found += [] if lines[-1].startswith(("return", "}")) else [f"{path.name} does not return what it offers"]
    for function in chunk.every():
        strange = sorted((function.reads - KNOWN) | function.writes)
        found += [f"{path.name}:{function.first}: {name} is a global" for name in strange]
        if function.last - function.first + 1 > LONGEST_FUNCTION:
            found.append(f"{path.name}:{function.first}: a function of more than {LONGEST_FUNCTION} lines")
    return found


def main() -> int:
    files = sorted(FOLDER.glob("*.lua"))
    found = [mistake for path in files for mistake in mistakes(path)]
    print(*found, sep="\n", end="\n" if found else "")
    failed = bool(found)
    if luacheck := shutil.which("luacheck"):
        failed |= subprocess.run([luacheck, "-q", *map(str, files)], cwd=ROOT, check=False).returncode > 0
    if STYLUA.exists() and (node := shutil.which("node")):
        script = str(Path(__file__).parent / "format.cjs")
        failed |= subprocess.run([node, script, *sys.argv[1:], *map(str, files)], check=False).returncode > 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
