delete from oncebox_members where queue = $1 and owner = $2
