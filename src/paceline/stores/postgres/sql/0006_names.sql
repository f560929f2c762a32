-- Names of the glossary.
alter table if exists paceline.line rename to queue_state;
alter table if exists paceline.gate rename to group_lock;
alter table if exists paceline.last_word rename to final_record;
