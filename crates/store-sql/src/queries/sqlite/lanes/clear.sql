delete from oncebox_lanes where queue = $1
