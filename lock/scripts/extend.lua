-- Moves the end of one grant, and never that of another.
--
-- The end never becomes sooner: an older request that was late must not take a
-- newer one back. A holder that asked for less knows by itself when to stop.
--
-- KEYS: the lock
-- ARGV: request, ms from now
-- Returns 1, or 0 if the grant is not held (any longer).
if plain then -- one grant: see free.lua
  local mine = 'held ' .. ARGV[1] .. ' '
  if string.sub(plain, 1, #mine) == mine then
    -- Always a write, which a replica refuses: it may not know of a grant since.
    redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
    return 1
  end
  if string.match(plain, '^held %S+ ') then return 0 end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fields = redis.call('HGETALL', KEYS[1])
local mine, last = nil, 0
for i = 1, #fields, 2 do
  if fields[i] == ARGV[1] then
    mine = tonumber(fields[i + 1])
  elseif fields[i] ~= 'owner' and fields[i] ~= 'token' and fields[i] ~= 'inbox' then
    last = math.max(last, tonumber(fields[i + 1]))
  end
end
if mine == nil or mine <= now then return 0 end
local ends = math.max(mine, now + tonumber(ARGV[2]))
local function write() return redis.pcall('HSET', KEYS[1], ARGV[1], string.format('%.0f', ends)) end
local written = write()
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', math.max(last, ends)))
-- A server without memory moves the end, and having moved it, writes. The other way round, the
-- key would have no end where the server stood still until that was over.
if type(written) == 'table' and written.err then write() end
return 1
