-- Of each day the mean share of the steps that each rule's fixes save, over the day's traces.
with counts as (
    select day, count(*) as traces from scanned where day <> 'unknown' group by day
), of_rule as (
    select s.day, x.rule, sum(x.share) as share from scanned as s join shares as x using (key) group by all
)
select c.day, c.traces, coalesce(r.rule, '') as rule, coalesce(r.share / c.traces, 0)::double as share
from counts as c left join of_rule as r using (day) order by c.day, share desc, rule;
