"""Bugs in the way from one release to the next."""

from __future__ import annotations

from .rule import Rule, beside, sql

DRAINED_BY_TWO = "test_two_releases_drain_one_queue_under_one_limit"
UNUSED = "test_functions_that_nobody_uses_are_removed"
GRANTED = "test_a_role_that_was_granted_the_tables_may_use_those_that_came"

RULES = [
    Rule(
        "other functions have another fingerprint",
        (DRAINED_BY_TWO, "test_a_release_that_changed_only_a_function_is_installed_beside_the_other"),
        sql=beside("postgres/names", "hashlib.sha256(functions_text().encode())", "hashlib.sha256(b'')"),
    ),
    Rule(
        "functions that are not all there are made again",
        ("test_functions_that_were_dropped_are_made_again",),
        sql=beside("postgres/schema", "self.functions == len(function_names())", "self.functions > 0"),
    ),
    Rule(
        "what the user made on top of our functions is never dropped with them",
        (UNUSED,),
        sql=beside(
            "postgres/schema",
            "execute 'drop routine ' || v_names;",
            "execute 'drop routine ' || v_names || ' cascade';",
        ),
    ),
    Rule(
        "a function of the user's in a new schema is not one that an earlier release left",
        ("test_functions_of_the_user_with_our_names_stay_where_they_are",),
        sql=sql("0005_functions_apart", "if coalesce(v_number, 0) = 0 then return; end if;", ""),
    ),
    Rule(
        "functions of earlier releases beside the tables are dropped",
        ("test_a_program_of_the_earlier_release_gets_an_error_and_changes_nothing",),
        sql=sql("0005_functions_apart", "in array string_to_array(v_first, ';') loop", "in array '{}'::text[] loop"),
    ),
    Rule(
        "tables are changed when nobody uses them",
        (
            "test_tables_that_somebody_uses_are_waited_for",
            "test_tables_that_stay_in_use_are_no_reason_to_wait_for_ever",
        ),
        sql=beside("postgres/schema", 'f"lock table {every} in access exclusive mode;"', '"select 1;"'),
    ),
    Rule(
        "a migration is one transaction",
        (
            "test_a_migration_that_is_killed_in_the_middle_has_changed_nothing",
            "test_many_that_migrate_at_once_migrate_once",
        ),
        sql=beside(
            "postgres/schema",
            "    async with connection.transaction():\n        # A migration",
            "    if True:\n        # A migration",
        ),
    ),
    Rule(
        "of several migrations one does it",
        ("test_many_that_migrate_at_once_migrate_once", "test_of_many_migrations_at_once_one_does_it"),
        sql=beside("postgres/schema", "select pg_advisory_xact_lock(hashtextextended(%s, 7072))", "select %s::text"),
    ),
    Rule(
        "tables that only newer functions understand are left alone",
        ("test_a_newer_schema_is_refused", "test_a_program_that_runs_while_a_newer_release_takes_over_is_told"),
        sql=beside("postgres/schema", "state.oldest > FORMAT", "state.oldest > FORMAT + 1000"),
    ),
    Rule(
        "functions that no longer work on the tables go with the change",
        ("test_functions_of_a_format_that_is_no_longer_understood_go_at_once",),
        sql=beside("postgres/schema", "i.format < OLDEST or i.seen_at", "i.seen_at"),
    ),
    Rule(
        "the functions of the release before stay",
        (UNUSED,),
        sql=beside(
            "postgres/schema", "                and i.fingerprint <> (select", "                and '' <> (select"
        ),
    ),
    Rule(
        "a program notes that it uses its functions",
        ("test_a_program_says_once_an_hour_that_it_uses_its_functions",),
        sql=beside("postgres/calls", "if time.monotonic() >= self._seen_until:", "if False:"),
    ),
    Rule(
        "who may use the tables may use those that come, and the functions",
        (GRANTED,),
        sql=beside("postgres/schema", "        end.append(_filled(GRANTS", "        str(_filled(GRANTS"),
    ),
    Rule(
        "a queue that was looked at on another server is looked at again",
        ("test_jobs_that_wait_in_a_dump_and_jobs_that_come_later_start",),
        sql=beside("postgres/calls", "        await schemas.look_at_all(connection, self._names)\n", ""),
    ),
]
