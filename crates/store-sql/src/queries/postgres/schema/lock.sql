-- One process migrates at a time; the others wait here and then find the work done. Ends with the transaction.
select pg_advisory_xact_lock(hashtextextended('oncebox migrations of ' || $1, 0))
