-- Grants the lock, also once more to its holder, or says when it runs out.
--
-- A lock is a hash: field "owner", and for each grant a field named after its
-- request, with the server's time in ms at which that grant ends. The key lives
-- as long as the last of them.
--
-- KEYS: the lock, the mark of this request being withdrawn or released
-- ARGV: owner, request, lease in ms
-- Returns {1, the owner's grants} or {0, ms until the lock runs out}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fields = redis.call('HGETALL', KEYS[1])
local holder, others, last, over = nil, 0, 0, {}
for i = 1, #fields, 2 do
  if fields[i] == 'owner' then
    holder = fields[i + 1]
  else
    local ends = tonumber(fields[i + 1])
    if ends <= now then
      over[#over + 1] = fields[i]
    else
      last = math.max(last, ends)
      if fields[i] ~= ARGV[2] then others = others + 1 end
    end
  end
end
if last > 0 and holder ~= ARGV[1] then return {0, last - now} end
if redis.call('EXISTS', KEYS[2]) == 1 then return {0, math.max(last - now, 0)} end

for _, request in ipairs(over) do redis.call('HDEL', KEYS[1], request) end
last = math.max(last, now + tonumber(ARGV[3]))
redis.call('HSET', KEYS[1], 'owner', ARGV[1], ARGV[2], string.format('%.0f', now + tonumber(ARGV[3])))
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
return {1, others + 1}
