with told as (
    select status, uri, split_part(case when starts_with(message, uri) then ltrim(substr(message, length(uri) + 1), ': ') else message end, chr(10), 1) as message
    from latest where status <> 'scanned'
    union all
    select status, uri, 'no kernel or copy is in it: the profiler did not record the GPU' as message
    from latest where status = 'scanned' and activities = 0
)
select status, message, count(*) as traces, min(uri) as example from told group by status, message
order by traces desc, status, message limit $top;
