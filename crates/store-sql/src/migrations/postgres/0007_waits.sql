-- Waits are counted: whoever waited can tell whether another one that waits at the same time came to its start.
alter table {schema}.starts alter column waits type int4 using waits::int4;
