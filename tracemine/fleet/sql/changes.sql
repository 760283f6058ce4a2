-- From a job's day to its next: what the findings that are gone were said to save, beside what the step lost. One that
-- was said to save GPU time and nothing of the step predicts nothing here.
select job, last_day, next_day, count(*) as findings, least(sum(said_ns), any_value(step_before_ns))::bigint as said_ns,
    any_value(step_before_ns) as step_before_ns, any_value(step_after_ns) as step_after_ns
from gone where step_before_ns is not null and step_after_ns is not null and said_ns > 0
group by job, last_day, next_day order by last_day desc, job limit $top;
