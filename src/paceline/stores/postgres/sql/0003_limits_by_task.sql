-- Limits are looked up by task: those that name it, and those that name none.
create index if not exists lim_tasks on paceline.lim using gin (tasks) with (fastupdate = off);
create index if not exists lim_of_all_tasks on paceline.lim (space) where tasks is null;
