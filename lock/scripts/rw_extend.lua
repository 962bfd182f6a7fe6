-- Moves the end of one grant of a read-write lock, and never that of another.
--
-- The end never becomes sooner: an older request that was late must not take a
-- newer one back. A holder that asked for less knows by itself when to stop.
--
-- KEYS: the lock
-- ARGV: the grant's member, ms from now
-- Returns 1, or 0 if the grant is not held (any longer).
local what = string.match(ARGV[1], '^%l+')
local mine = endOf(what, ARGV[1])
if mine <= now then return 0 end
look()
local ends = math.max(mine, now + ARGV[2])
redis.call('PEXPIREAT', KEYS[1], text(math.max(ends, last())))
-- A server without memory moves the end of the key, and having moved it, writes. If it stood
-- still until that was over, the key is gone, and isn't made again.
redis.call('ZADD', KEYS[1], 'XX', text(base[what] + ends), ARGV[1])
return 1
