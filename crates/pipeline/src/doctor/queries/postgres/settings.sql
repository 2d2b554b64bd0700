-- What the server was told to survive, and who looks, as a grant names them.
select current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'),
    quote_ident(current_user)
