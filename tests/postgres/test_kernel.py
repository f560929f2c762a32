"""Keys in the database and keys of the Python kernel follow the same rules; whole claims do in `tests/histories`."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from paceline.limits import AllOf, Concurrency, Delay, EvenlySpaced, Kind, Rate, Unlimited
from paceline.limits.admission import Meter
from paceline.limits.rule import encode_kind

from ..servers.fresh import database

START = 1_000_000
COSTS = (1, 2, 3, 5)

WALK = """create or replace function pg_temp.walk(p_meter bigint, p_nows bigint[], p_costs bigint[], p_kinds jsonb[],
    p_late bigint[], p_open bigint[])
returns table (opens bigint[], used bigint, allowed bigint, admits bigint, few bigint, only_time boolean,
    only_room boolean, forgettable boolean, late boolean)
language plpgsql as $$
declare
    m paceline.meter;
begin
    for i in 1 .. cardinality(p_nows) loop
        if p_kinds[i] is not null then perform paceline.change_meter(p_meter, p_kinds[i]); end if;
        select * into m from paceline.meter where id = p_meter;
        opens := array(select paceline.opens_at(m, c) from unnest('{1,2,3,5}'::bigint[]) as c);
        select u.used, u.allowed into used, allowed from paceline.used_and_allowed(m, p_nows[i], m.in_flight) as u;
        admits := paceline.admits(m, p_nows[i], 1000000);
        few := least(paceline.admits(m, p_nows[i], 2), 2);
        only_time := paceline.lacks_only_time(m, 2, p_nows[i]);
        only_room := paceline.lacks_only_room(m, 2, p_nows[i]);
        forgettable := paceline.forgettable(m, p_nows[i]);
        late := paceline.admits_late(m, 2, p_nows[i]);
        return next;
        if p_late[i] is not null then
            -- A start of cost 2 that was stamped then has begun now.
            m.parts := paceline.take_out(p_meter, m.parts, 2, p_late[i]);
            m.parts := paceline.count_begin(p_meter, m.parts, 2, p_nows[i]);
        end if;
        m.open := m.open + p_open[i];
        update paceline.meter set parts = m.parts, open = m.open where id = p_meter;
        if p_costs[i] > 0 then
            update paceline.meter set parts = paceline.count_start(m, p_costs[i], p_nows[i]) where id = p_meter;
        end if;
    end loop;
end $$"""


def a_kind(dice: random.Random) -> Kind:
    kinds: list[Kind] = [
        Rate(dice.randint(1, 6), f"{dice.choice([5, 10, 20])}us"),
        Rate(dice.randint(1, 3), f"{dice.choice([5, 10])}us", guard=f"{dice.choice([1, 3])}us"),
        Concurrency(dice.randint(1, 3)),
        Delay(f"{dice.choice([1, 5, 10])}us"),
        EvenlySpaced(dice.randint(1, 7), f"{dice.choice([5, 10, 20])}us"),
        EvenlySpaced(dice.randint(3, 9), "2us"),
    ]
    one = dice.choice(kinds)
    if dice.random() < 0.1:
        return Unlimited()
    return AllOf(one, dice.choice(kinds)) if dice.random() < 0.4 else one


def lates(dice: random.Random, nows: list[int]) -> tuple[list[int | None], list[int]]:
    """Earlier instants from which a start is moved, and by how much what is open changes."""
    moved = [dice.choice(nows[: place + 1]) if dice.random() < 0.2 else None for place in range(len(nows))]
    levels = [0, *(dice.choice([0, 0, 0, 1, 2]) for _ in nows)]
    return moved, [level - before for before, level in itertools.pairwise(levels)]


def history(dice: random.Random) -> tuple[list[int], list[int], list[Kind | None]]:
    """Instants, what is charged at each (0: nothing), and where the numbers change."""
    now, nows, costs, kinds = START, [], [], []
    for _ in range(40):
        now += dice.choice([0, 0, 1, 1, 2, 3, 5, 7, 10, 30])
        nows.append(now)
        costs.append(dice.choice([0, 1, 1, 1, 2, 3]))
        kinds.append(a_kind(dice) if dice.random() < 0.06 else None)
    return nows, costs, kinds


@pytest.mark.parametrize("seed", range(120))
def test_a_key_in_the_database_and_one_in_python_say_the_same(seed: int) -> None:
    dice = random.Random(seed)
    first = a_kind(dice)
    # The key of a group may be forgotten, so it remembers more than a shared one.
    group = dice.choice([None, "acme"])
    nows, costs, kinds = history(dice)
    moved, opened = lates(dice, nows) if seed % 2 else ([None] * len(nows), [0] * len(nows))
    connection = database()
    connection.execute(WALK)
    (number,) = connection.execute(
        "insert into paceline.meter (id, lim, grp, kind, parts, slots) "
        "select coalesce((select max(id) from paceline.meter), 0) + 1, 0, %s, k, paceline.new_parts(k), "
        "paceline.slots_of(paceline.new_parts(k)) "
        "from (select %s::jsonb as k) as s returning id",
        (group or "", json.dumps(encode_kind(first))),
    ).fetchone() or (0,)
    said = connection.execute(
        "select * from pg_temp.walk(%s, %s, %s, %s::text[]::jsonb[], %s::bigint[], %s::bigint[])",
        (number, nows, costs, [kind and json.dumps(encode_kind(kind)) for kind in kinds], moved, opened),
    ).fetchall()

    meter = Meter(("kernel", group), first)
    for row, now, cost, kind, late_at, opens_up in zip(said, nows, costs, kinds, moved, opened, strict=True):
        if kind is not None:
            meter.change(kind)
        opens, used, allowed, admits, few, only_time, only_room, forgettable, late = row
        assert opens == [meter.opens_at(each) for each in COSTS]
        expected = meter.used_and_allowed(now)
        if expected[1] is None or used <= allowed:
            assert (used, allowed) == expected
        else:
            assert expected[0] >= expected[1]  # more than full: how much more is no store's promise
        assert (only_time, only_room) == (meter.lacks_only_time(2, now), meter.lacks_only_room(2, now))
        assert forgettable == meter.forgettable(now)
        if admits is not None:
            assert (admits > 0) == (meter.opens_at(1) <= now)
            assert admits == admitted(meter, now)
            assert few == min(admits, 2)
        assert late == meter.admits_late(2, now)
        if late_at is not None:
            meter.take_out(2, late_at)
            meter.begin(2, now)
        meter.open_up(opens_up)
        if cost:
            meter.count(cost, now)


def admitted(meter: Meter, now: int) -> int:
    """How many starts of cost 1 a key admits at one instant, by starting them on a copy; many count as endless."""
    copy = Meter(meter.key, meter.kind)
    copy._set_cells([(part, part.load(part.dump(state))) for part, state in meter.cells])
    copy.hold_until = meter.hold_until
    copy.open = meter.open
    number = 0
    while copy.opens_at(1) <= now:
        copy.charge(f"start {number}", 1, now)
        number += 1
        if number > 20:
            return meter.slots
    return number
