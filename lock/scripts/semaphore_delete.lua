-- Removes the semaphore, and with it what is held of it and who waits for it.
--
-- KEYS: see semaphore.lua
-- ARGV: life of the mark in ms, channel
-- Returns 1, or 0 if there was none.
if done then return tonumber(done) end
if not size then return 0 end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
redis.call('SET', KEYS[5], 1, 'PX', ARGV[1])
redis.pcall('PUBLISH', ARGV[2], 'all')
return 1
