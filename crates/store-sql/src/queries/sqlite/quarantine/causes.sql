-- Counts the parked messages of a consumer by cause (index oncebox_parked_paging).
select cause, count(*), count(*) filter (where due_at is null), min(first_at), max(last_at)
from oncebox_parked
where consumer = $1
group by cause
order by count(*) desc, cause
