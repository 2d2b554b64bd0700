-- The types of parameters as they are written in a cast. With a modifier of -1 it is the type without a length:
-- `character` and `bit` alone would be one character and one bit, and a cast cuts off what is more.
select format_type(seen.type, -1)
from unnest($1::oid[]) with ordinality as seen (type, place)
order by seen.place
