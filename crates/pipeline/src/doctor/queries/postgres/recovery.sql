-- Whether the server follows another.
select pg_is_in_recovery()
