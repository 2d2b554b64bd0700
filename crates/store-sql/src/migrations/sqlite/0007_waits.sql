-- Waits are counted from here on; the column has always been a number. What was noted before says at most one too few.
update oncebox_starts set waits = min(waits, 1);
