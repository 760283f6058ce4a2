with each as (
    select s.day as name, s.key, x.rule, sum(x.share) as share
    from scanned as s left join shares as x using (key) group by all
), of_rule as (select name, rule, sum(share) as share from each group by all)
select each.name, count(distinct key) as traces, (coalesce(sum(share), 0) / count(distinct key))::double as share,
    coalesce((select arg_max(rule, of_rule.share) from of_rule where of_rule.name = each.name), '') as largest
from each group by each.name order by each.name desc limit $top;
