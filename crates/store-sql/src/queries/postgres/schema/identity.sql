-- The identity, and which database of its cluster this is: a copy made from a template has the same first part.
select value || '/' || (select oid from pg_catalog.pg_database where datname = current_database())
from {schema}.meta where name = 'identity'
