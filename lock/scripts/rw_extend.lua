-- Moves the end of one grant of a read-write lock, and never that of another.
-- It doesn't look at the others, so that many readers are cheap to keep.
--
-- The end never becomes sooner: an older request that was late must not take a
-- newer one back. A holder that asked for less knows by itself when to stop.
--
-- KEYS: the lock
-- ARGV: the grant's field, ms from now
-- Returns 1, or 0 if the grant is not held (any longer).
local got = redis.call('HMGET', KEYS[1], ARGV[1], 'ends')
local mine, last = tonumber(got[1] or 0), tonumber(got[2] or 0)
if mine <= now then return 0 end
local ends = math.max(mine, now + tonumber(ARGV[2]))
local function write() return redis.pcall('HSET', KEYS[1], ARGV[1], string.format('%.0f', ends)) end
local written = write()
if type(written) == 'table' and written.err then -- no memory: see extend.lua
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', math.max(last, ends)))
  write()
end
if ends > last then change({}, ends) end
return 1
