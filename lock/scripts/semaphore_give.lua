-- Gives back permits that were taken for good, by whomever.
--
-- KEYS: see semaphore.lua
-- ARGV: permits, life of the mark in ms, channel
-- Returns 1, or 0 if fewer are taken.
if done then return tonumber(done) end
if not size then return redis.error_reply(notSet) end
if taken < tonumber(ARGV[1]) then return 0 end
taken = taken - tonumber(ARGV[1])
settle()
redis.call('SET', KEYS[5], 1, 'PX', ARGV[2])
wake(ARGV[3])
return 1
