-- Says how many permits there are, and how many are taken. It writes nothing.
--
-- KEYS: see semaphore.lua
-- Returns {permits, taken}.
if not size then return redis.error_reply(notSet) end
return {size, taken + leased}
