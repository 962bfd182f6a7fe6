-- Counts those in the queue who haven't lost their place. It writes nothing.
--
-- KEYS: the deadlines
-- Returns how many there are.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return redis.call('ZCOUNT', KEYS[1], '(' .. string.format('%.0f', now), '+inf')
