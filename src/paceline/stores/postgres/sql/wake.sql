-- Who listens, and what they are told. A notification is a hint: everything is correct without it.

-- A process says that it listens, or goes on to, and whether anybody sleeps there. Gives the first transaction number
-- that surely saw it: whoever began earlier may not have, so the process looks by itself until all of those are over.
-- Null when everybody knew all along: it was said before, and half of the time for which it was said is left.
create function paceline.listen_on(p_space int, p_process text, p_wants_empty boolean, p_asleep boolean, p_for bigint)
returns text language plpgsql as $$
declare
    v_known boolean;
begin
    select until > paceline.clock_us() + p_for / 2 and (asleep or not p_asleep) and (wants_empty or not p_wants_empty)
        into v_known from paceline.listener where space = p_space and process = p_process;
    insert into paceline.listener (space, process, wants_empty, asleep, until)
        values (p_space, p_process, p_wants_empty, p_asleep, paceline.clock_us() + p_for)
        on conflict (space, process) do update set wants_empty = excluded.wants_empty, asleep = excluded.asleep,
            until = excluded.until;
    return case when v_known then null else pg_current_xact_id()::text end;
end $$;

create function paceline.stop_listening(p_space int, p_process text) returns void language sql as $$
    delete from paceline.listener where space = p_space and process = p_process
$$;

-- Whether a word about a queue has to be sent at all.
create function paceline.has_listeners(p_space int, p_late boolean) returns boolean language plpgsql as $$
begin
    return current_setting('transaction_isolation') <> 'read committed' or exists (select from paceline.listener
        where space = p_space and until > paceline.clock_us() and (asleep or p_late));
end $$;

-- Tell all processes that listen: q a queue has something, e a queue is empty, w a worker's lease, j a job ended, * all.
-- A job that the store failed (f) is only for whoever asked.
-- Nothing is sent when nobody sleeps, but for what concerns a worker that runs jobs. Whoever cannot know who will sleep
-- when the transaction ends tells in any case: in a caller's transaction (`p_late`), or with an old snapshot.
create function paceline.notify(p_space int, p_words text[], p_late boolean default false) returns void
language plpgsql as $$
declare
    v_text text;
begin
    if p_words = '{}' then return; end if;
    if current_setting('transaction_isolation') = 'read committed' then
        if not exists (select from paceline.listener where space = p_space and until > paceline.clock_us()
            and (asleep or p_late or exists (select from unnest(p_words) as t (w) where left(w, 1) = 'w'))) then
            return;
        end if;
    end if;
    select string_agg(distinct case when left(w, 1) in ('q', 'e') then left(w, 1) || (
        select q.name from paceline.queue q where q.id = substr(w, 2)::int) else w end, chr(10))
        into v_text from unnest(p_words) as t (w) where left(w, 1) <> 'f';
    if v_text is null then return; end if;
    if octet_length(v_text) > 7000 then v_text := '*'; end if;
    perform pg_notify('paceline.wakeups', p_space || chr(10) || pg_backend_pid() || chr(10) || v_text);
end $$;

-- True when somebody, here or in another process, wants to hear that a queue is empty.
create function paceline.wants_empty(p_space int, p_here boolean) returns boolean language sql volatile as $$
    select p_here or exists (
        select from paceline.listener where space = p_space and wants_empty and until > paceline.clock_us())
$$;
