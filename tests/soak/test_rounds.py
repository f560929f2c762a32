"""The loop of a soak: what goes wrong is printed and counted, and the other seeds and places go on."""

from __future__ import annotations

import itertools

import pytest

from . import rounds as module
from .rounds import rounds


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN", 0.002)


def test_a_wrong_seed_stops_nobody_and_is_printed_at_the_end(capsys):
    seeds: list[int] = []

    def third_is_wrong(seed: int) -> str | None:
        seeds.append(seed)
        return "it differs" if len(seeds) == 3 else None

    wrong = rounds("kind", {"here": third_is_wrong}, seconds=0.05, most=5)

    said = capsys.readouterr().out
    assert wrong == 1
    assert len(seeds) > 3
    assert seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    assert f"kind here: seed {seeds[2]} is wrong\nit differs" in said
    assert said.splitlines()[-1] == f"kind here: {len(seeds)} from seed {seeds[0]} on, wrong: [{seeds[2]}]"


def test_a_place_that_keeps_going_wrong_is_left_and_the_others_go_on(capsys):
    driven = itertools.count()

    def broken(seed: int) -> str | None:
        raise RuntimeError("no server")

    def well(seed: int) -> None:
        next(driven)

    assert rounds("kind", {"broken": broken, "well": well}, seconds=0.05, most=2) == 2
    assert next(driven) > 2
    assert capsys.readouterr().out.count("RuntimeError: no server") == 2


def test_a_seed_that_does_not_end_is_wrong(monkeypatch, capsys):
    monkeypatch.setattr(module, "STUCK", 0.02)

    def hangs(seed: int) -> None:
        while True:
            pass

    assert rounds("kind", {"here": hangs}, seconds=5, most=1) == 1
    assert "TimeoutError: it did not end within" in capsys.readouterr().out
