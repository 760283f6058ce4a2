-- A row for each finding that any trace has: what it costs over the jobs' newest days, and the trace that shows it best.
with spans as (
    select x.fingerprint, min(nullif(s.day, 'unknown')) as first_day, max(nullif(s.day, 'unknown')) as last_day
    from shares as x join scanned as s using (key) group by x.fingerprint
), of_job as (
    select fingerprint, job_name, sum(traces)::bigint as traces, sum(share) as share, sum(low) as low,
        least(sum(high), 1) as high
    from job_shares group by fingerprint, job_name
), worst as (  -- of each job the trace in which it costs most
    select n.job_name, x.fingerprint, x.module from newest as n join shares as x using (key)
    qualify row_number() over (partition by n.job_name, x.fingerprint order by x.share desc, n.key, x.module) = 1
), cost as (
    select o.fingerprint, count(*) as jobs, sum(o.traces)::bigint as traces, sum(h.gpu_hours)::double as of_hours,
        sum(o.low * h.gpu_hours)::double as gpu_hours_low, sum(o.share * h.gpu_hours)::double as gpu_hours,
        sum(o.high * h.gpu_hours)::double as gpu_hours_high,
        list({'job': o.job_name, 'traces': o.traces, 'share': o.share::double, 'module': w.module,
              'gpu_hours': (o.share * h.gpu_hours)::double}
             order by o.share * h.gpu_hours desc, o.job_name)[:12] as most
    from of_job as o join job_hours as h using (job_name) join worst as w using (job_name, fingerprint)
    group by o.fingerprint
), here as (
    select x.fingerprint, bool_or(x.reported) as reported,
        bool_or(x.of_span) as of_span, count(distinct coalesce(x.module, '')) as modules, count(distinct x.fix) as fixes,
        coalesce(list_sort(list(distinct n.gpu) filter (n.gpu is not null)), []) as gpu_names,
        coalesce(list_sort(list(distinct n.model) filter (n.model is not null)), []) as model_names,
        first(n.key order by x.share * h.gpu_hours desc, n.key) as key
    from newest as n join shares as x using (key) join job_hours as h using (job_name) group by x.fingerprint
), example as (
    select f.* from findings as f join here using (key, fingerprint)
    qualify row_number() over (partition by f.fingerprint order by f.rank) = 1
)
select spans.fingerprint, first_day, last_day, coalesce(jobs, 0) as jobs, traces, of_hours, gpu_hours_low, gpu_hours,
    gpu_hours_high, most, coalesce(here.reported, false) as reported, of_span,
    modules, fixes, gpu_names, model_names, here.key, n.uri,
    n.job_name as job, n.day, e.rule, e.title, e.evidence, e.module, e.file, e.line, e.line_begins_function as begins,
    e.function, e.ops, e.fix, e.verdict_basis
from spans left join cost using (fingerprint) left join here using (fingerprint)
    left join example as e on e.fingerprint = spans.fingerprint left join newest as n on n.key = here.key
order by gpu_hours desc nulls last, spans.fingerprint;
