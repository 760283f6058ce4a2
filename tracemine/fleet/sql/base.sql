-- Traces that count: of each place the newest generation, a scan before a failure; of equal contents in one job the earliest:
-- a file in two jobs is a sample of each, for GPU-hours are by job.
create temp table latest as
select * from runs
qualify row_number() over (partition by uri order by status = 'scanned' desc, generation desc, modified_ns desc nulls last) = 1;

create temp table active as
select *, coalesce(job, '') as job_name from latest where status = 'scanned' and coalesce(activities, 1) > 0;

create temp table scanned as
select * from active
qualify row_number() over (partition by job_name, content_sha256 order by day, uri) = 1;

-- Of each job the newest day.
create temp table newest as
select * from scanned qualify day = max(day) over (partition by job_name);

create temp table job_hours as
select job_name,
    case when (select hours from said) then coalesce(any_value(hours.gpu_hours), 0)
         else (select assumed from said) / (select count(distinct job_name) from newest) end as gpu_hours
from newest left join hours on hours.job = newest.job_name
group by job_name;

-- What each finding saves, as a share of the steps of its trace; where no steps are known, of its span.
create temp table shares as
select f.key, f.fingerprint, f.rule, f.title, f.step_saving_share is null as of_span,
    least(greatest(coalesce(f.step_saving_share, f.step_saving_ns / nullif(s.span_ns, 0), 0), 0), 1) as share,
    f.step_saving_low_ns / nullif(f.step_saving_ns, 0) as low, f.step_saving_high_ns / nullif(f.step_saving_ns, 0) as high,
    f.per_step_saving_ns, f.reported, f.module, f.fix
from findings as f join scanned as s using (key);

-- The mean over a job's traces of the day: a trace without the finding counts as none of it.
create temp table job_shares as
select n.job_name, x.rule, x.fingerprint, min(x.title) as title, count(distinct x.key) as traces,
    sum(x.share) / any_value(t.traces) as share,
    sum(x.share * coalesce(x.low, 1)) / any_value(t.traces) as low,
    sum(least(x.share * coalesce(x.high, 1), 1)) / any_value(t.traces) as high
from newest as n join shares as x using (key)
    join (select job_name, count(*) as traces from newest group by job_name) as t on t.job_name = n.job_name
group by n.job_name, x.rule, x.fingerprint;

-- Findings that a job had and has no more: on the last day with it, and on the job's next day.
create temp table gone as
with days as (
    select job_name, day, lead(day) over (partition by job_name order by day) as next_day,
        median(unprofiled_step_ns) as step_ns
    from scanned where day <> 'unknown' group by job_name, day
), seen as (
    select s.job_name, x.fingerprint, any_value(x.rule) as rule, max(s.day) as last_day,
        arg_max(x.per_step_saving_ns, s.day) as said_ns, max(x.share) as share
    from scanned as s join shares as x using (key)
    where x.reported and s.day <> 'unknown' group by s.job_name, x.fingerprint
)
select seen.job_name as job, seen.share, fingerprint, rule, last_day, before.next_day, said_ns::bigint as said_ns,
    round(before.step_ns)::bigint as step_before_ns, round(after.step_ns)::bigint as step_after_ns
from seen join days as before on before.job_name = seen.job_name and before.day = last_day
    join days as after on after.job_name = seen.job_name and after.day = before.next_day
where last_day < (select max(day) from days where days.job_name = seen.job_name);
