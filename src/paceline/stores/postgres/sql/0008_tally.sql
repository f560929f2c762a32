-- How many finished jobs a queue has: the sum of its rows. Each step that adds or removes some adds a row, and a `base`
-- takes the place of those before it.
create table paceline.tally (
    queue int not null,
    id bigint generated always as identity,
    completed bigint not null,
    failed bigint not null,
    cancelled bigint not null,
    base boolean not null default false,
    primary key (queue, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index tally_base on paceline.tally (queue, id) where base;
insert into paceline.tally (queue, completed, failed, cancelled, base)
select
    d.queue,
    count(*) filter (where d.state = 4) as completed,
    count(*) filter (where d.state = 5) as failed,
    count(*) filter (where d.state = 6) as cancelled,
    true as base
from paceline.done as d
group by d.queue;
