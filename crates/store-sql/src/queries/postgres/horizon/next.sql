-- Where the next step of expiry goes on: at the same page $1 if the limit stopped this one ($2: the newest record that it
-- deleted), otherwise after what it read, and nowhere after the last page.
select case
    when $2::int8 is not null then $1::int8
    when $1::int8 + 256 < pg_relation_size('{schema}.inbox') / current_setting('block_size')::int8 then $1::int8 + 256
end
