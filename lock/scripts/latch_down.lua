-- Counts a latch down by one, unless it is at 0. The mark makes a repetition
-- return the same, and count no second time.
--
-- KEYS: see latch_set.lua
-- ARGV: life of the mark in ms, life of a latch at 0 in ms, channel
-- Returns what is left.
local done = redis.call('GET', KEYS[2])
local count = tonumber(redis.call('HGET', KEYS[1], 'count'))
if done then return tonumber(done) end
if not count then return redis.error_reply('NOTSET the count was not set, or the latch was deleted since') end
if count == 0 then return 0 end
redis.call('HSET', KEYS[1], 'count', string.format('%.0f', count - 1))
redis.call('SET', KEYS[2], string.format('%.0f', count - 1), 'PX', ARGV[1])
if count == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.pcall('PUBLISH', ARGV[3], 'all')
end
return count - 1
