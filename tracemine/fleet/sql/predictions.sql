with judged as (
    select f.* from findings as f join scanned using (key) where f.verdict_level is not null
)
select count(*) filter (verdict_eager_ns is not null and verdict_fused_ns is not null) as count,
    avg(abs((fused_ns / nullif(occurrences, 0)) - verdict_fused_ns) / nullif(verdict_eager_ns, 0))
        filter (verdict_eager_ns is not null and verdict_fused_ns is not null and fused_ns is not null) as mean_error,
    count(*) filter (verdict_basis = 'refuted') as refuted
from judged;
