-- What all steps on a read-write lock begin with.
--
-- A read-write lock is a hash: for each grant a field "read:<request>:<owner>"
-- or "write:<request>:<owner>" with the server's time in ms at which that grant
-- ends, for each writer that waits and is preferred a field
-- "wait:<request>:<owner>" with the time until which it keeps new readers out,
-- and field "ends" with the time at which the key ends, which is never before
-- any of those.
--
-- KEYS: the lock
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- each calls visit with every field, its kind, its owner and its end. The result
-- is an error if the key is a lock of another kind.
local function each(visit)
  local fields = redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do
    if fields[i] ~= 'ends' then
      local what, owner = string.match(fields[i], '^(%l+):[^:]*:(.*)$')
      if not what then return redis.error_reply('WRONGTYPE the lock of that name is no read-write lock') end
      visit(fields[i], what, owner, tonumber(fields[i + 1]))
    end
  end
end

-- change removes fields, and makes the key end with the last of the others; with
-- all of them gone, at once.
local function change(gone, last)
  if last <= now then
    redis.call('DEL', KEYS[1])
    return
  end
  for _, field in ipairs(gone) do redis.call('HDEL', KEYS[1], field) end
  redis.call('HSET', KEYS[1], 'ends', string.format('%.0f', last))
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
end

