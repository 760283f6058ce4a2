with jobs as (
    select rule, job_name, min(title) as title, sum(traces) as traces, sum(share) as share, sum(low) as low,
        sum(high) as high, arg_max(fingerprint, share) as fingerprint
    from job_shares group by rule, job_name
)
select rule, case when count(distinct title) = 1 then min(title) else split_part(min(title), ': ', 1) end as title,
    count(*) as jobs, sum(traces)::bigint as traces,
    sum(low * gpu_hours)::double as gpu_hours_low, sum(share * gpu_hours)::double as gpu_hours,
    sum(least(high, 1) * gpu_hours)::double as gpu_hours_high,
    arg_max(fingerprint, share * gpu_hours) as fingerprint, arg_max(job_name, share * gpu_hours) as worst_job
from jobs join job_hours using (job_name)
group by rule having sum(share * gpu_hours) > 0
order by gpu_hours desc, rule limit $top;
