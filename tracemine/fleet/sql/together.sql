-- What all findings of a trace save together of its steps, by job and over all: a step is never saved twice.
with of_trace as (
    select job_name,
        least(greatest(coalesce(step_saving_low_ns / nullif(whole, 0), 0), 0), 1) as low,
        least(greatest(coalesce(step_saving_ns / nullif(whole, 0), 0), 0), 1) as mid,
        least(greatest(coalesce(step_saving_high_ns / nullif(whole, 0), 0), 0), 1) as high
    from (select *, case when steps > 0 then unprofiled_step_ns * steps else span_ns end as whole from newest)
), of_job as (select job_name, avg(low) as low, avg(mid) as mid, avg(high) as high from of_trace group by job_name)
select coalesce(sum(low * gpu_hours), 0)::double as gpu_hours_low, coalesce(sum(mid * gpu_hours), 0)::double as gpu_hours,
    coalesce(sum(high * gpu_hours), 0)::double as gpu_hours_high
from of_job join job_hours using (job_name);
