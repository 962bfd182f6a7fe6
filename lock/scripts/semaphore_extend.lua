-- Moves the end of one grant.
--
-- The end never becomes sooner: an older request that was late must not take a
-- newer one back. A holder that asked for less knows by itself when to stop.
--
-- KEYS: see semaphore.lua
-- ARGV: request, permits, ms from now
-- Returns 1, or 0 if the grant is not held (any longer).
local grant = ARGV[2] .. ':' .. ARGV[1]
local ends = tonumber(redis.call('ZSCORE', KEYS[2], grant)) or 0
if not size or ends <= now then return 0 end
-- First what a server without memory does as well; then it does the rest too.
redis.call('PEXPIREAT', KEYS[2], redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2])
lease(grant, math.max(ends, now + tonumber(ARGV[3])))
if #over > 0 then settle() end
return 1
