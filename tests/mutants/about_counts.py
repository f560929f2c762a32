"""Rules about numbers that are kept beside what they count."""

from __future__ import annotations

from .rule import Rule, sql

COUNTED = "test_what_is_counted_is_what_there_is"

RULES = [
    Rule(
        "jobs that come to a lane are counted for its class",
        (COUNTED,),
        sql=sql("newest", "coalesce(v_waiting[k], 0) + p_sign *", "coalesce(v_waiting[k], 0) + least(p_sign, 0) *"),
    ),
    Rule(
        "a group that had nothing waiting is counted when jobs come to it",
        (COUNTED,),
        sql=sql("fold", "                s.groups := s.groups + 1;\n", ""),
    ),
    Rule(
        "jobs that start are not counted as waiting for their class",
        (COUNTED,),
        sql=sql("start", "class_waiting = v_waiting, ", ""),
    ),
    Rule(
        "a group whose last job starts has nothing waiting",
        (COUNTED,),
        sql=sql("start", "groups = groups - p_emptied", "groups = groups"),
    ),
    Rule(
        "a group with jobs in another lane still has some waiting",
        (COUNTED,),
        sql=sql("start", "where v_waiting is null or not u.grp = any (v_waiting));", ");"),
    ),
    Rule(
        "jobs that leave their lanes are not counted as waiting",
        (COUNTED,),
        sql=sql("fold", "array_agg(l.class) as classes", "array_agg(0) as classes"),
    ),
    Rule(
        "a group whose last job is removed has nothing waiting",
        (COUNTED,),
        sql=sql("fold", "        s.groups := s.groups - v_left.groups;\n", ""),
    ),
    Rule(
        "jobs whose task changes its class are counted for the new one",
        (COUNTED,),
        sql=sql("classes", "array[-v_all, v_all]", "array[0, 0]"),
    ),
    Rule(
        "a run that is over for good is counted as finished",
        (COUNTED,),
        sql=sql("tally", "cardinality(array_positions(p_states, 4))", "0"),
    ),
    Rule(
        "what is not kept is not counted as finished",
        (COUNTED,),
        sql=sql("finish", " and array_position(p_keeps, 0) is null then", " then"),
    ),
    Rule(
        "a job that is cancelled before it starts is counted as finished",
        (COUNTED,),
        sql=sql(
            "finish",
            "if p_job.keep is distinct from 0 then",
            "if p_job.keep is distinct from 0 and p_job.grp is null then",
        ),
    ),
    Rule(
        "finished jobs that are removed or retried are not counted any more",
        (COUNTED,),
        sql=sql("tally", "select g.queue, -count(*) filter (where g.state = 4),", "select g.queue, 0,"),
    ),
    Rule(
        "rows that count finished jobs are summed up",
        ("test_the_rows_that_count_finished_jobs_stay_few",),
        sql=sql("tally", "v_id % 256 = 0", "false"),
    ),
    Rule(
        "a read takes no lock",
        ("test_a_claim_is_not_delayed_by_reads_whose_transaction_stays_open",),
        sql=sql(
            "overview",
            "perform paceline.check_group(v_lim, coalesce(p_group, ''));",
            "perform paceline.require_key(p_space, p_limit, coalesce(p_group, ''));",
        ),
    ),
]
