"""The steps in Lua: one library of functions, made of the modules in `lua/`. Each returns what it offers to the others.

A server lends its own functions to a library only while one of its steps runs, so the first step links the modules.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files

import msgspec

from paceline.stores.redis.layout import AS_LISTS, FORMAT, RECORDS

MODULES = tuple(
    """
    constants records step commands order decoded kept rate memory kinds meters room holds limits reserving rows groups
    lanes filing turns lines classes wakes join runs complete permits late choosing start manage looking run
    """.split()  # noqa: SIM905 - a list of words is easier to read and to change
)
"""In an order in which each finds the constants and functions that it takes from others when it is linked."""

# When memory is full workers must still start, claim and end jobs: that frees it. Only what adds jobs is refused.
_ANYTIME, _WITH_ROOM, _READS = "'allow-oom'", "", "'no-writes'"
_STEPS = """
    acquire begun claim decide_again drop_limit expire extend finish finished give_back hello hold move note obliterate
    override pause prune register release set_limits sleep sweep wake watch
"""
READS = frozenset(["counts", "find", "get", "overrides", "queues", "standing", "usage"])
"""Steps that write nothing, whoever asks: they run on a replica too."""
STEPS = dict.fromkeys(_STEPS.split(), _ANYTIME) | {"insert": _WITH_ROOM} | dict.fromkeys(sorted(READS), _READS)
"""Each step, with the flags of its function; its module has the same name."""

_LENT = "ipairs, pairs, next, type, tonumber, tostring, unpack, error, pcall, setmetatable"
"""What every module uses of Lua itself: looking for it by its name costs as much as calling it."""
_LINK = """
local linked = false

local function link()
  collectgarbage('setpause', 1000) -- what is in use, this library above all, is looked at by each collection
  for _, name in ipairs(order) do
    modules[name] = modules[name] or {}
  end
  for _, name in ipairs(order) do
    local offered = sources[name](function(wanted)
      return modules[wanted]
    end, LENT)
    for key, value in pairs(offered) do
      modules[name][key] = value
    end
  end
  linked = true
end

local function register(name, flags)
  redis.register_function({
    function_name = LIBRARY .. '_' .. name,
    callback = function(keys, given)
      if not linked then
        link()
      end
      return modules.run.run(modules[name], keys, given)
    end,
    flags = flags,
  })
end

"""


RELEASE = 2
"""Grows with every release whose steps differ, so that a server can tell libraries of neighbours from older ones."""
_NUMBERED = re.compile(r"paceline_(?:(\d+)_)?[0-9a-f]{12}")


def is_outdated(name: str) -> bool:
    """True for a library of ours that is older than the release before this one; the first ones had no number."""
    found = _NUMBERED.fullmatch(name)
    return found is not None and int(found[1] or 1) < RELEASE - 1


class Library:
    """The text that a server must know, under a name that no other version has."""

    def __init__(self) -> None:
        body = _body()
        self.name = f"paceline_{RELEASE}_{hashlib.sha256(body.encode()).hexdigest()[:12]}"
        self.text = f"#!lua name={self.name}\nlocal LIBRARY = '{self.name}'\n{body}".encode()
        self._functions: dict[str, bytes] = {}

    def function(self, step: str) -> bytes:
        """The name of one step."""
        found = self._functions.get(step)
        if found is None:
            found = self._functions[step] = f"{self.name}_{step}".encode()
        return found


@cache
def library() -> Library:
    """The library of this version."""
    return Library()


def module_text(name: str) -> str:
    """The text of one module; the records are made from their declarations."""
    if name == "records":
        return _records()
    return (files("paceline.stores.redis") / "lua" / f"{name}.lua").read_text("utf-8")


def _body() -> str:
    names = [*MODULES, *STEPS]
    parts = ["local sources, modules = {}, {}\n", f"local order = {{ {', '.join(map(repr, names))} }}\n"]
    parts += [f"sources.{name} = function(require, {_LENT})\n{module_text(name)}end\n" for name in names]
    parts.append(_LINK.replace("LENT", _LENT))
    parts += [f"register('{name}', {{ {flags} }})\n" for name, flags in STEPS.items()]
    return "".join(parts)


def _records() -> str:
    """Of records that stay lists the places of their fields; of the others what makes their text, and reads it."""
    parts = ["local pack, unpack_one = cmsgpack.pack, cmsgpack.unpack\n", f"local records = {{ FORMAT = {FORMAT} }}\n"]
    for record in AS_LISTS:
        names = [field.encode_name.upper() for field in msgspec.structs.fields(record)]
        parts += [f"records.{record.__name__.upper()}_{name} = {place}\n" for place, name in enumerate(names, 1)]
        parts += [f"records.{name} = {place}\n" for place, name in enumerate(names, 1)]
    for name, record in RECORDS.items():
        fields = msgspec.structs.fields(record)
        names = [field.encode_name for field in fields]
        # A short record is one without the fields at its end that say nothing by default.
        short = [f"from.{field.encode_name} or false" for field in fields if field.default is not None]
        every = [f"from.{field} or false" for field in names]
        filled = [f"  into.{field} = list[{place}] or nil\n" for place, field in enumerate(names, 1)]
        named = [f"{field} = list[{place}] or nil" for place, field in enumerate(names, 1)]
        parts += [
            f"function records.encode_{name}(from, is_short)\n",
            f"  if is_short then\n    return pack({{ {', '.join(short)} }})\n  end\n",
            f"  return pack({{ {', '.join(every)} }})\nend\n",
            f"function records.fill_{name}(into, list)\n{''.join(filled)}end\n",
            f"function records.decode_{name}(text)\n  local list = unpack_one(text)\n",
            f"  return {{ {', '.join(named)} }}\nend\n",
        ]
    return "".join(parts) + "return records\n"
