-- On the last day with it, and on the job's next day: no trace of any later day has it.
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
select seen.job_name as job, fingerprint, rule, last_day, before.next_day, said_ns::bigint as said_ns,
    round(before.step_ns)::bigint as step_before_ns, round(after.step_ns)::bigint as step_after_ns
from seen join days as before on before.job_name = seen.job_name and before.day = last_day
    join days as after on after.job_name = seen.job_name and after.day = before.next_day
where last_day < (select max(day) from days where days.job_name = seen.job_name)
order by seen.share desc, fingerprint limit $top;
