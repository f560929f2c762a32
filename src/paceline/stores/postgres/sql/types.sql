-- What the steps of a claim hand to each other.

-- One claim on its way: what it may still move and take, and what it learned about waiting.
create type paceline.choosing as (
    space int, now bigint, slots int, worker text, lease bigint, -- who asks, for how many, for how long
    queues int[], unpaused int[], active int[], last int, -- places: which may give a job, still may; which gave the latest
    knowns int[], -- the numbers under which the queues know the tasks of the worker
    also bigint[], also_lims int[], also_names text[], -- keys that a limiter of the worker brings along
    room bigint, most bigint, needs_room bigint, -- what the worker's own limiter leaves, admits at most, lacks
    moves int, budget int, busy boolean, -- how many of each kind it moves; what is left for choosing; there is more
    limited boolean, limits int[], reserved boolean, -- there are limits; those that are locked; room is kept under some key
    started bigint[], fences bigint[], guards bigint[], agains boolean[], -- jobs that start; which of them came back
    skipped bigint[], -- lanes that are passed over, for this claim
    stuck_queues int[], stuck_until bigint[], -- queues whose next job waits for a limit that the worker brings along
    lost text[], wakes text[], empty boolean, -- ends that came too late; notifications; also that a queue is empty
    opened bigint, -- all lanes that were blocked until then are ready
    again_at bigint, next_due bigint, next_expiry bigint, -- when to ask again
    claim_id text, claim_version bigint, first_fence bigint, last_fence bigint -- the latest claim of the worker
);

-- A lane and its next job.
create type paceline.head as (lane bigint, queue int, class int, grp bigint, grp_name text, shared int[], grouped int[],
    priority bigint, place bigint, again boolean);

-- What one pass chooses from, as parallel arrays; the numbers in one array are places in others.
create type paceline.turns as (
    k_id int[], k_place int[], k_time bigint[], k_low_turn bigint[], k_low_filed bigint[], -- classes, and their queues
    k_from int[], k_to int[], k_keys int[], -- the shared keys of class k: k_keys[k_from[k] .. k_to[k]]
    m_id bigint[], m_row tid[], m_free bigint[], m_guard bigint[], -- keys, and how many starts of cost 1 each admits
    l_id bigint[], l_row tid[], l_k int[], l_grp bigint[], l_name text[], l_turn bigint[], l_filed bigint[], -- lanes
    l_priority bigint[], l_head bigint[], l_several boolean[], -- their heads; whether their groups have other lanes
    l_from int[], l_to int[], l_keys int[], l_free bigint[], -- the keys of their groups, and how much these admit
    l_edge boolean[], -- only their heads are known, and stand for what was not loaded
    a_lane int[], a_kind int[], a_tag bigint[], a_priority bigint[], a_place bigint[], a_row tid[], a_again boolean[],
    q_place int[], q_number int[], -- how many candidates each queue has
    edge_place int[], edge_turn bigint[], edge_filed bigint[], -- the first group of a queue that was not loaded
    mark_class int[], mark_turn bigint[], mark_filed bigint[], -- the first ready lane of each class
    singly boolean -- some key has to be asked again after every start
);

-- What a claim answers, without the bodies of jobs.
create type paceline.claim_head as (instant bigint, again_at bigint, needs_room bigint, lost text[],
    wakes text[], seqs bigint[], fences bigint[], guards bigint[], agains boolean[], replayed boolean);

-- Arrivals, in the order in which they came.
create type paceline.arrived as (ids bigint[], xids xid8[], whats int[], lanes bigint[], tasks text[], grps text[],
    numbers int[], priorities bigint[], places bigint[], lims int[]);

-- The lanes that jobs came to, of each class and group one.
create type paceline.lane_filing as (
    classes int[], g int[], grps bigint[], names text[], paused boolean[], fresh boolean[], -- groups; those that are new
    lanes bigint[], guesses bigint[], moves boolean[], free boolean[], -- where adders put jobs; whether that number is free
    numbers int[], priorities bigint[], places bigint[], -- how many came, and the best of them
    turns bigint[], filed bigint[], sizes bigint[], -- of the groups
    rows tid[], states int[], opens boolean[], waiting int[], head_priorities bigint[], head_places bigint[] -- of the lanes
);
