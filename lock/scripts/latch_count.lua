-- Says what is left to count down. It changes nothing, but a replica refuses it: what a
-- replica has is late, and may lack a latch that was set already.
--
-- KEYS: the latch
-- Returns {what is left, round}.
redis.call('HDEL', KEYS[1], '')
local latch = redis.call('HMGET', KEYS[1], 'count', 'round')
if not latch[1] then return redis.error_reply('NOTSET the count was not set, or the latch was deleted since') end
return {tonumber(latch[1]), latch[2]}
