select count(*) as traces, count(distinct job_name) as jobs, count(distinct day) as days,
    coalesce(sum(size_bytes), 0)::bigint as content_bytes,
    (select count(*) from latest where status <> 'scanned') as not_scanned,
    (select count(*) from latest where status = 'scanned') - (select count(*) from active) as without_activities,
    (select count(*) from active) - count(*) as duplicates,
    count(*) filter (steps = 0) as without_steps,
    (select count(*) from gone) as gone,
    (select count(*) from (
        select fingerprint from job_shares group by fingerprint having count(*) > 1 and sum(share) > 0
    )) as recurring,
    (select coalesce(sum(gpu_hours), 0) from job_hours)::double as gpu_hours
from scanned;
