-- The last statement before COMMIT. In an aborted transaction it fails with 25P02, where COMMIT itself would report
-- success; in another transaction the mark that was set at BEGIN is gone.
select coalesce(current_setting('oncebox.transaction', true), ''), current_setting('synchronous_commit')
