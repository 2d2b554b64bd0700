-- Anything at all: it fails on a connection that is gone.
select 1
