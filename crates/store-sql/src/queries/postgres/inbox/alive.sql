-- Anything at all: in an aborted transaction it fails with 25P02, where COMMIT itself would report success.
select 1
