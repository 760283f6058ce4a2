select fingerprint, min(rule) as rule, min(title) as title, count(*) as jobs,
    sum(share * gpu_hours)::double as gpu_hours
from job_shares join job_hours using (job_name)
group by fingerprint having count(*) > 1 and sum(share) > 0
order by jobs desc, gpu_hours desc, fingerprint limit $top;
