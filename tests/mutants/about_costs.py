"""Rules about costs, and the room that is kept for big jobs."""

from __future__ import annotations

from .rule import Planted, Rule, lua, sql

RULES = [
    Rule(
        "a start is charged with its cost",
        ("test_a_cost_counts_for_a_rate",),
        sql=sql(
            "start",
            "order by u.place), p_taken, array_fill(1::bigint",
            "order by u.place), array_fill(1::bigint, array[cardinality(p_meters)]), array_fill(1::bigint",
        ),
        lua=lua(
            "start",
            "(all) do\n      charge(row, meter, rows.cost_under(cost, meter.name), keys)",
            "(all) do\n      charge(row, meter, 1, keys)",
        ),
    ),
    Rule(
        "a cost by limit counts there and as one elsewhere",
        ("test_a_cost_by_limit_counts_there_and_as_one_elsewhere",),
        sql=sql(
            "meters", "coalesce((p_costs ->> p_limit)::bigint, 1) end", "coalesce((p_costs ->> p_limit)::bigint, 2) end"
        ),
        lua=lua("rows", "return cost[limit] or 1", "return cost[limit] or 2"),
    ),
    Rule(
        "a cost above the maximum is refused at once",
        ("test_a_cost_above_the_maximum_is_refused_at_once",),
        sql=sql("insert", "where f.cost > f.most order by", "where f.cost > f.most + 5 order by"),
        lua=lua(
            "insert", "if part[1] == 'rate' and cost > part[2] then", "if part[1] == 'rate' and cost > part[2] + 5 then"
        ),
    ),
    Rule(
        "a job that no longer fits fails at the claim",
        ("test_a_job_that_no_longer_fits_fails_at_the_claim_and_hides_nobody",),
        sql=sql("consider", "where not paceline.fits(k, t.cost) order by t.place", "where false order by t.place"),
        lua=lua("choosing", "if costs[place] > meters.most(meter) then", "if costs[place] < 0 then"),
    ),
    Rule(
        "a big job keeps the room free until it started",
        (
            "test_a_big_job_keeps_the_room_free_until_it_started",
            "test_a_stream_of_small_jobs_does_not_starve_a_big_one",
        ),
        python=Planted("big_job_that_never_reserves"),
        sql=sql(
            "reserve",
            "where paceline.opens_at(m, t.cost) > p_now;\n    select coalesce",
            "where false;\n    select coalesce",
        ),
        lua=lua(
            "choosing",
            "      reserving.reserve(meter, row.id, costs[place])\n    end\n  end\n  local own",
            "    end\n  end\n  local own",
        ),
    ),
    Rule(
        "room is kept for one window at most",
        ("test_kept_room_is_free_again_after_one_window_when_nobody_serves_the_big_job",),
        sql=sql(
            "meters",
            "reserved_deadline = p_now + paceline.longest_rate(m.parts)",
            "reserved_deadline = p_now + 3 * paceline.longest_rate(m.parts)",
        ),
        lua=lua(
            "reserving",
            "meter.reserved_deadline = step.now + window",
            "meter.reserved_deadline = step.now + 3 * window",
        ),
    ),
    Rule(
        "a big job that something else refuses keeps no room",
        ("test_a_big_job_that_comes_to_be_refused_otherwise_gives_its_room_up",),
        sql=sql("reserve", "and not paceline.lacks_only_room(m, t.cost, p_now));", "and false);"),
        lua=lua("start", "> step.now and not reserving.lacks_only_room(other, cost) then", "> step.now and false then"),
    ),
    Rule(
        "kept room is kept from permits too",
        ("test_kept_room_is_kept_from_permits_too",),
        sql=sql(
            "limits",
            "if m.reserved_by is not null and (m.reserved_by <> p_permit",
            "if false and (m.reserved_by <> p_permit",
        ),
        lua=lua(
            "acquire",
            "if meter.reserved_by and meter.reserved_by ~= step.args.permit and step.now <",
            "if false and step.now <",
        ),
    ),
    Rule(
        "kept room is kept from the other tasks of a group",
        ("test_room_kept_in_one_group_stops_its_other_tasks_but_no_other_group",),
        sql=sql(
            "consider",
            "case when c.reserved and k.reserved_by is not null and k.reserved_by <> p_job.id then",
            "case when false then",
        ),
        lua=lua(
            "choosing",
            "if meter.reserved_by or not room.admits_unit(meter) then",
            "if not room.admits_unit(meter) then",
        ),
    ),
    Rule(
        "a better job that joins a lane that a big one blocks starts at once",
        ("test_a_better_job_starts_before_the_big_one_that_blocks_its_lane",),
        lua=lua("groups", "record[FIRST_LANE + LANE_STATE] == BLOCKED or record", "record"),
        equivalent="a lane is blocked for longer than its group's window only by a big head, for which room is kept; "
        "every claim looks at kept room first, finds another head, gives the room up and files the lane as ready",
    ),
]
