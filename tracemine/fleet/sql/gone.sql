select job, fingerprint, rule, last_day, next_day, said_ns, step_before_ns, step_after_ns
from gone order by share desc, fingerprint, job limit $top;
