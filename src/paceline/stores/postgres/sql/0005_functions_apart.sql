-- Functions live apart from tables, those of each release in a schema of their own: two releases can share the tables.
-- What earlier releases left beside the tables goes, by name and signature; everything else there is the user's.
do $do$
declare
    v_number int := (select max(number) from paceline.version);
    v_first text := $list$
        "only"(integer[], boolean); acquire(integer, bigint, text[], text[], bigint[], text, bigint, boolean, boolean);
        add_jobs(integer, bigint, text[], bytea[], text[], integer, text, bigint, boolean, integer, text, bigint,
        bigint, boolean); admits(paceline.meter, bigint); after_end(integer, bigint[], text[], bigint[], boolean,
        integer[], bigint, boolean, boolean); are_plain(text[], jsonb[]); arrive(paceline.job, bigint, bigint, boolean);
        await_keys(bigint[]); begin_part(integer, bigint); change_meter(bigint, jsonb); charge_many(bigint[], bigint[],
        bigint); charged(bigint[], bigint, bigint); claim(integer, bigint, integer[], integer, text, bigint, text,
        text[], text[], bigint, bigint, text[], bigint[], text[], bytea[], text[], bigint[], bigint[], boolean[],
        jsonb[], boolean); claim_jobs(integer, bigint, integer[], integer, text, bigint, text, text[], text[], bigint,
        bigint, text[], bigint[], text[], bytea[], text[], bigint[], bigint[], boolean[], jsonb[], boolean);
        class_for(paceline.queue, text); class_of(integer, integer[], boolean, integer[]); class_opens(integer[]);
        clean(integer, bigint, integer, integer, bigint, bigint, bigint, integer); clear(integer, bigint, text, text);
        clear_meter(bigint); clock_us(); consider(paceline.choosing, paceline.head, paceline.job); cost_under(bigint,
        jsonb, text); count_start(paceline.meter, bigint, bigint); counts(integer, bigint, text); declare_limit(integer,
        jsonb); drain(integer, integer, bigint, bigint, integer); drop_limit(integer, bigint, text);
        drop_reservations(integer, text, boolean); dump(integer, text); end_permit(paceline.permit, boolean);
        end_plainly(integer, bigint, text[], bigint[], text[], bytea[], text[], boolean); end_run(paceline.job,
        paceline.lease, text, bigint, bigint, bytea, text, boolean); end_runs(integer, bigint, text[], bigint[], text[],
        bytea[], text[], bigint[], bigint[], boolean[], jsonb[], boolean); end_waiting(paceline.job, integer, bigint,
        text, boolean); expire(integer, bigint); extend(integer, bigint, text, text[], bigint[], bigint); fail(text,
        jsonb); file_arrivals(paceline.line, bigint[], integer[], bigint[], text[], text[], integer[], bigint[],
        bigint[]); file_full(integer[], text[], bigint[], bigint); file_lane(bigint, integer, bigint);
        file_until(bigint, bigint); find(integer, bigint, text, integer, text, text, integer, text); finish(integer,
        bigint, text[], bigint[], text[], bytea[], text[], bigint[], bigint[], boolean[], jsonb[], boolean);
        fits(paceline.meter, bigint); fold(integer); fold(integer, integer); fold_one(integer);
        forget_lowest(integer[]); forgettable(paceline.meter, bigint); free(bigint[], integer[], bigint[]);
        give_back(integer, bigint, text[]); give_up(integer, paceline.meter); gone(bigint, bigint[], integer, bigint);
        group_size(integer, text); groups_waiting(integer); guess_lane(integer, text, text);
        head_if_first(paceline.job); hears(integer, boolean); hold(integer, bigint, jsonb); hold_for(jsonb, integer,
        double precision); hold_key(integer, jsonb, bigint, bigint); hold_meter(paceline.meter, jsonb, bigint, double
        precision, text, bigint, bigint); insert_jobs(integer, bigint, text[], integer[], text[], bytea[], text[],
        bigint[], bigint[], bigint[], bigint[], boolean[], integer[], text[], bigint[], bigint[], jsonb[], bigint[],
        text[], bigint[], boolean); is_empty(integer); keep_room(paceline.head, paceline.job, bigint[], bigint[],
        bigint, boolean); keys_for(paceline.head, bigint, jsonb); keys_of(integer[], text); kind_of(paceline.lim, text);
        know(integer, text[]); known_by(integer, text); lacks_only_room(paceline.meter, bigint, bigint);
        lacks_only_time(paceline.meter, bigint, bigint); lane_of(bigint); lane_queues(bigint[]); lane_rows(bigint[]);
        lanes_in(integer); lanes_of(bigint); last_start(bigint[], integer); last_word_of(integer, text);
        leave(paceline.job); leave_many(bigint[]); lift(integer, bigint, text, text); limit_opened(integer, integer,
        text); limits(integer); line_of(integer); listen_on(integer, text, boolean, boolean, bigint);
        lock_and_fold(integer[]); lock_for_finish(integer, text[], jsonb[], integer[]); lock_group_keys(text[],
        integer[]); lock_keys(bigint[]); lock_queues(integer); lock_shared(paceline.choosing, bigint, text[]);
        longest_rate(bigint[]); longest_window(integer); look_again(integer, integer, text, integer); make_ready(tid[]);
        marked(paceline.line, integer, bigint, bigint); max_opens(bigint[], bigint[]); meeting(integer, text, text);
        meter_at(bigint); meter_of(integer, text); meters(bigint[]); misfit(integer, integer, text, text, bigint,
        jsonb); most(bigint[]); move(integer, bigint, text[], text, integer[], boolean); move_all(integer, bigint,
        integer, integer, text, integer[], boolean, bigint, bigint, integer); move_one(paceline.job, text, bigint,
        boolean); move_task(integer, text, integer, integer); names(jsonb); new_parts(jsonb); next_at(integer, boolean,
        integer); next_head(integer, integer, bigint); next_lease_end(integer); note(integer, text[], bigint[], double
        precision[], text[], text[]); note_claim(integer, bigint, bigint); obliterate(integer, integer, boolean);
        open_lanes(integer[], bigint, integer); opens_at(paceline.meter, bigint); opens_for(paceline.lease, bigint);
        opens_in_time(paceline.meter, bigint); override(integer, bigint, text, text, jsonb, text, bigint, bigint);
        overrides(integer, bigint); part_charge(bigint, bigint[], integer, bigint, bigint); part_of(integer, bigint,
        bigint, integer); part_opens(bigint, bigint[], integer, bigint); part_used(paceline.meter, integer, bigint,
        integer); pause(integer, text, text, boolean); plan(integer); promote_due(integer, bigint, integer);
        prune(integer, bigint, integer); queue_of(integer, text); queues(integer, bigint); queues_of(integer, text[]);
        quoted(text); reclassify(integer); reclassify_all(integer); records(integer, bigint[], bigint);
        register(integer, bigint, text, text[], text[]); release(integer, bigint, text, text); remove_jobs(integer,
        bigint[]); renew(paceline.lim); require_key(integer, text, text); require_limit(integer, text);
        reserve_permit(bigint[], bigint[], text, bigint); same_class(paceline.queue, text, text);
        save_reservation(bigint, text, boolean, bigint, bigint); seqs_of(integer, text[]);
        serve_reserved(paceline.choosing, integer[], integer[], integer); set_limits(integer, bigint, jsonb, jsonb);
        slots_of(bigint[]); space_of(text); spacing_due(bigint, bigint, bigint, bigint, bigint); standing(integer,
        bigint, text); start_job(paceline.choosing, paceline.head, paceline.job, bigint[], bigint[]); starts(integer,
        text, bigint); state_of(paceline.job, bigint); still_reserves(paceline.head, paceline.job, bigint);
        stop_listening(integer, text); stop_waiting(integer, text, text); take_back(integer, bigint, integer, boolean);
        take_first(paceline.choosing, integer, integer); take_in(integer[], bigint, integer, integer);
        take_lane(paceline.choosing, integer, integer, integer); take_one(paceline.choosing, integer, integer);
        take_turns(paceline.choosing, integer[], integer[], integer); take_unique(integer, text, bigint, bigint,
        bigint); tell(integer, text[], boolean); trim_shared(bigint[], bigint); trim_spent(bigint, bigint[], integer,
        bigint, integer); unregister(integer, text); usage(integer, bigint, text, text); usage_of(integer, paceline.lim,
        text, bigint, bigint); used_and_allowed(paceline.meter, bigint, integer); wait_for(integer, bigint, text, text,
        bigint); waiting_under(integer, paceline.lim, text); wants_empty(integer, boolean);
        write_starts(paceline.choosing, integer[], bigint[], bigint[], bigint[], boolean[], tid[], integer[], integer[],
        integer[], integer[], integer[], integer[], integer[], integer[], integer[], integer[], bigint[], integer[],
        integer[], bigint[], bigint[])
        $list$;
    v_later text := $list$
        abandon(bigint[], bigint[]); acquire_all(integer, bigint, text[], text[], bigint[], text, bigint, boolean,
        boolean, text[]); acquire_late(integer, bigint, text[], text[], bigint[], text, bigint, bigint);
        admits_late(paceline.meter, bigint, bigint); begin_open(integer, bigint[], bigint); begin_part(integer, bigint,
        bigint, integer); begin_permit(paceline.permit, bigint); begin_starts(integer, bigint[], text[], bigint,
        bigint[], bigint[]); begin_under(bigint, bigint[], bigint[], bigint[], bigint); begun(integer, bigint, text[],
        bigint[], bigint[]); beneath(paceline.lim, text); change_meter(bigint, jsonb, jsonb);
        class_to_be(paceline.queue, text); count_begin(bigint, bigint[], bigint, bigint); crashed_text(integer, text);
        decide_again(integer, bigint, text[], bigint[], boolean); failed_word(paceline.job, integer, text);
        find(integer, bigint, text, integer, text, text, integer, text, boolean); fold_spent(bigint, bigint[], integer);
        forget_starts(bigint); fresh_parts(paceline.lim, text, jsonb); give_room(integer, bigint[]);
        goes_on_from(bigint, bigint[]); guard_of(bigint[]); lanes_of(bigint[]); last_cost(bigint, bigint[], integer);
        last_lines(text[]); leads(bigint, bigint, bigint, bigint, bigint); lock_runs(integer, bigint, text[], bigint[]);
        move_starts(bigint[], bigint[]); open_again(bigint[], bigint[], bigint, bigint); open_up(bigint[], bigint[],
        integer); put_in(bigint, bigint[], integer, bigint, bigint); reach(bigint[]); register(integer, bigint, text,
        text[], text[], jsonb); remember(bigint[], bigint[], boolean); remembering(bigint[]); retire_classes(integer);
        rules_of(bigint[]); take_in(paceline.choosing, integer); take_out(bigint, bigint[], bigint, bigint);
        waited(bigint); warm_claim(integer, integer, text[], bigint[]); warm_up(); write_starts(paceline.choosing,
        integer[], bigint[], bigint[], bigint[], boolean[], tid[], integer[], integer[], integer[], integer[],
        integer[], integer[], integer[], integer[], integer[], integer[], bigint[], bigint[], integer[], integer[],
        bigint[], bigint[])
        $list$;
    v_name text;
begin
    -- A new schema has none of them: a function of the same name is the user's.
    if coalesce(v_number, 0) = 0 then return; end if;
    if v_number > 1 then v_first := v_first || ';' || v_later; end if;
    foreach v_name in array string_to_array(v_first, ';') loop
        execute 'drop function if exists paceline.' || ltrim(v_name, E' \n');
    end loop;
    drop type if exists paceline.choosing, paceline.claim_head, paceline.ended, paceline.extended, paceline.grant_,
        paceline.head, paceline.part;
    if v_number > 1 then drop type if exists paceline.decided; end if;
end $do$;

-- What the latest look could see is counted in transactions of the server: another one, where a dump was put back, has
-- others. All that is still there is looked at.
update paceline.line set folded = null, folded_by = null, folding = null, folding_by = null, folding_xid = null,
    folding_id = null;

-- The earliest format whose functions still work on these tables.
alter table paceline.version add column oldest int;

-- The functions that are installed: `seen_at` is renewed by the programs that use them, once an hour.
create table paceline.installed (
    fingerprint text collate "C" primary key,
    release text not null,
    format int not null,
    installed_at timestamptz not null default now(),
    seen_at timestamptz not null default now()
);
