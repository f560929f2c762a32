"""The steps in Lua: one library of functions, made of the modules in `lua/`. Each returns what it offers to the others.

A server lends its own functions to a library only while one of its steps runs, so the first step links the modules.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

import msgspec

from paceline.stores.redis.layout import RECORDS

MODULES = tuple(
    """
    constants records step commands order decoded rate memory kinds meters limits reserving rows lanes turns lines wakes
    runs permits late choosing manage looking run
    """.split()  # noqa: SIM905 - a list of words is easier to read and to change
)
"""In an order in which each finds the constants and functions that it takes from others when it is linked."""

# When memory is full workers must still start, claim and end jobs: that frees it. Only what adds jobs is refused.
_ANYTIME, _WITH_ROOM = "'allow-oom'", ""
_STEPS = """
    acquire begun claim counts decide_again drop_limit extend find finish finished get give_back hello hold move note
    obliterate override overrides pause prune queues register release set_limits sleep standing sweep usage wake watch
"""
STEPS = dict.fromkeys(_STEPS.split(), _ANYTIME) | {"insert": _WITH_ROOM}
"""Each step, with the flags of its function; its module has the same name."""

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
    end)
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


class Library:
    """The text that a server must know, under a name that no other version has."""

    def __init__(self) -> None:
        body = _body()
        self.name = "paceline_" + hashlib.sha256(body.encode()).hexdigest()[:12]
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
    parts += [f"sources.{name} = function(require)\n{module_text(name)}end\n" for name in names]
    parts.append(_LINK)
    parts += [f"register('{name}', {{ {flags} }})\n" for name, flags in STEPS.items()]
    return "".join(parts)


def _records() -> str:
    """For each record a function that makes its text, and one that makes a table with named fields of it."""
    parts = ["local pack, unpack_one = cmsgpack.pack, cmsgpack.unpack\n", "local records = {}\n"]
    for name, record in RECORDS.items():
        fields = msgspec.structs.fields(record)
        # Fields that are None by default are left out where there is nothing to say.
        given = [f"from.{field.encode_name}" + ("" if field.default is None else " or false") for field in fields]
        named = [f"{field.encode_name} = list[{place}] or nil" for place, field in enumerate(fields, 1)]
        parts.append(f"function records.encode_{name}(from)\n  return pack({{ {', '.join(given)} }})\nend\n")
        parts.append(f"function records.name_{name}(list)\n  return {{ {', '.join(named)} }}\nend\n")
        parts.append(f"function records.decode_{name}(text)\n  return records.name_{name}(unpack_one(text))\nend\n")
    return "".join(parts) + "return records\n"
