-- Gives back all lanes that we hold.
update oncebox_lanes set owner = null, expires_at = 0 where queue = $1 and owner = $2
