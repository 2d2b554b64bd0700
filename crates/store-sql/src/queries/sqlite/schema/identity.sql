-- The identity, and which file this is: a copy has the same first part.
select value || '/' || (select file from pragma_database_list where name = 'main')
from oncebox_meta where name = 'identity'
