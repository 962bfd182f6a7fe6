-- Says who holds the lock. It writes nothing.
--
-- KEYS: the lock
-- Returns {owner, its grants, ms until the last of them ends}, or {"", 0, 0}.
if plain then -- one grant: see free.lua
  local owner = string.match(plain, '^held %S+ (.*)$')
  if owner then return {owner, 1, redis.call('PTTL', KEYS[1])} end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fields = redis.call('HGETALL', KEYS[1])
local owner, grants, last = '', 0, now
for i = 1, #fields, 2 do
  if fields[i] == 'owner' then
    owner = fields[i + 1]
  elseif fields[i] ~= 'token' and fields[i] ~= 'inbox' and tonumber(fields[i + 1]) > now then
    grants = grants + 1
    last = math.max(last, tonumber(fields[i + 1]))
  end
end
if grants == 0 then return {'', 0, 0} end
return {owner, grants, last - now}
