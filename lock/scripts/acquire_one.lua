-- Asks for a lock by its key alone: for while its slot moves to another server, which refuse a
-- script that names keys of which some are not there. It sees no mark, so a copy of a request
-- that was withdrawn may get the lock until its lease ends, and no ticket, so it may overtake.
--
-- KEYS: the lock
-- ARGV: "held REQUEST OWNER", lease in ms
-- Returns 1, or {0, ms until the lock runs out, 0, 0}.
local request, owner = string.match(ARGV[1], '^held (%S+) (.*)$')
local holder, last = nil, 0
if not plain then
  local fields = redis.call('HGETALL', KEYS[1])
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  for i = 1, #fields, 2 do
    if fields[i] == 'owner' then
      holder = fields[i + 1]
    elseif fields[i] ~= 'token' and fields[i] ~= 'inbox' then
      last = math.max(last, tonumber(fields[i + 1]) - now)
    end
  end
  if last <= 0 then holder = nil end
else
  holder = string.match(plain, '^held %S+ (.*)$')
  if not holder then return redis.error_reply('WRONGTYPE the key is no lock') end
  last = math.max(redis.call('PTTL', KEYS[1]), 0)
end
-- An owner that enters the lock again, and a copy of its request, are for the script with all keys.
if holder == owner then return redis.error_reply('TRYAGAIN the owner has the lock') end
if holder then return {0, last, 0, 0} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
