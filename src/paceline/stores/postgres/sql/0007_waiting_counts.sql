-- What waits in the lanes of a queue, by class, and in how many groups: in the row that claims write anyway.
alter table paceline.queue_state
    add column if not exists groups bigint not null default 0,
    add column if not exists class_ids int[] not null default '{}',
    add column if not exists class_waiting bigint[] not null default '{}';
update paceline.queue_state as s
set groups = g.groups, class_ids = c.ids, class_waiting = c.waiting
from (
    select
        l.queue,
        count(distinct l.grp) as groups
    from paceline.lane as l
    where l.waiting > 0
    group by l.queue
) as g, (
    select
        k.queue,
        array_agg(k.class order by k.class) as ids,
        array_agg(k.waiting order by k.class) as waiting
    from (
        select
            l.queue,
            l.class,
            sum(l.waiting)::bigint as waiting
        from paceline.lane as l
        where l.waiting > 0
        group by l.queue, l.class
    ) as k
    group by k.queue
) as c
where g.queue = s.queue and c.queue = s.queue;
-- Of many groups and tasks, few are paused.
create index if not exists grp_paused on paceline.grp (queue, name) where paused;
create index if not exists task_paused on paceline.task (queue, name) where paused;
