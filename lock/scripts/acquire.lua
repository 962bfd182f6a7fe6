-- Grants the lock, also once more to its holder, or says when it runs out.
--
-- A lock is a hash: field "owner", for each grant a field named after its
-- request, with the server's time in ms at which that grant ends, and field
-- "token" if the lock is fenced. The key lives as long as the last grant.
--
-- A token is the server's time in us, or one more than the last token where that
-- is greater, so that tokens grow even when the last one was forgotten.
--
-- KEYS: the lock, the mark of this request being withdrawn or released, and for
-- a fenced lock the last token
-- ARGV: owner, request, lease in ms, and for a fenced lock the ms for which the
-- last token is remembered
-- Returns {1, the owner's grants, the token or 0}, or {0, ms until the lock runs
-- out}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fields = redis.call('HGETALL', KEYS[1])
local holder, token, others, mine, last, over = nil, nil, 0, 0, 0, {}
for i = 1, #fields, 2 do
  if fields[i] == 'owner' then
    holder = fields[i + 1]
  elseif fields[i] == 'token' then
    token = fields[i + 1]
  else
    local ends = tonumber(fields[i + 1])
    if ends <= now then
      over[#over + 1] = fields[i]
    else
      last = math.max(last, ends)
      if fields[i] == ARGV[2] then mine = ends else others = others + 1 end
    end
  end
end
local held = last > 0
if held and holder ~= ARGV[1] then return {0, last - now} end
if redis.call('EXISTS', KEYS[2]) == 1 then return {0, math.max(last - now, 0)} end

if not KEYS[3] then
  token = nil
elseif not (held and token) then
  local latest = tonumber(redis.call('GET', KEYS[3])) or 0
  token = string.format('%.0f', math.max(time[1] * 1000000 + time[2], latest + 1))
  redis.call('SET', KEYS[3], token, 'PX', ARGV[4])
end
if not held and #fields > 0 then redis.call('DEL', KEYS[1]) end
for _, request in ipairs(over) do redis.call('HDEL', KEYS[1], request) end
-- A copy of the request that was late must not take back an extension.
mine = math.max(mine, now + tonumber(ARGV[3]))
last = math.max(last, mine)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], ARGV[2], string.format('%.0f', mine))
if token then redis.call('HSET', KEYS[1], 'token', token) end
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
return {1, others + 1, tonumber(token or 0)}
