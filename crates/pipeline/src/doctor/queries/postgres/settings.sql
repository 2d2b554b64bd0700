-- What the server was told to survive, whether it follows another, and as whom we look, as a grant would name them.
select current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'),
    pg_is_in_recovery(), quote_ident(current_user)
