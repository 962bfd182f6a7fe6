-- Ends all grants of both sides of a read-write lock. Writers that wait keep
-- their preference.
--
-- The mark makes a repetition, whose reply was lost, leave the next holder alone.
--
-- KEYS: the lock, the mark
-- ARGV: the channel of the readers, that of the writers, life of the mark in ms
-- Returns 1 if there was a grant, else 0.
if KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
look()
if final('read') == 0 and final('write') == 0 then return 0 end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. text(base.wait))
local waits = final('wait')
if waits == 0 then redis.call('DEL', KEYS[1]) else settle() end
if KEYS[2] then redis.call('SET', KEYS[2], 1, 'PX', ARGV[3]) end
if waits == 0 then redis.pcall('PUBLISH', ARGV[1], 'all') end
redis.pcall('PUBLISH', ARGV[2], '1')
return 1
