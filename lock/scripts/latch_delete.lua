-- Removes the latch.
--
-- KEYS: see latch_set.lua
-- ARGV: life of the mark in ms, channel
-- Returns 1, or 0 if there was none.
if redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
if redis.call('HEXISTS', KEYS[1], 'count') == 0 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], 1, 'PX', ARGV[1])
redis.pcall('PUBLISH', ARGV[2], 'all')
return 1
