-- A lock as a hash: these lines stand before each script that needs one, and after those of
-- kind.lua.
--
-- It has a field "owner", for each grant a field named after its request, with the
-- server's time in ms at which that grant ends, and field "token" if the lock is
-- fenced. The key lives as long as the last grant. A lock of which there is no more
-- to say than one grant is a string at first: see free.lua.
--
-- KEYS: the lock
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if plain then
  local request, owner = string.match(plain, '^held (%S+) (.*)$')
  if request then -- else it is the key of another program, and using it as a hash fails
    -- In this order, so that a pause in between makes the end no sooner.
    local left, since = redis.call('PTTL', KEYS[1]), redis.call('TIME')
    local ends = string.format('%.0f', since[1] * 1000 + math.floor(since[2] / 1000) + left)
    redis.call('DEL', KEYS[1])
    redis.call('HSET', KEYS[1], 'owner', owner, request, ends)
    redis.call('PEXPIREAT', KEYS[1], ends)
  end
end
