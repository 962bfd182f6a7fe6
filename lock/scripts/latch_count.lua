-- Says what is left to count down. It writes nothing.
--
-- KEYS: the latch
-- Returns {what is left, round}.
local latch = redis.call('HMGET', KEYS[1], 'count', 'round')
if not latch[1] then return redis.error_reply('NOTSET nobody has said where the latch begins') end
return {tonumber(latch[1]), latch[2]}
