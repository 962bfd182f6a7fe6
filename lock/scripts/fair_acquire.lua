-- Grants the lock to the first in the queue, and once more to its holder, or
-- gives the request a place and says when it is worth to ask again.
--
-- The lock is the hash of hash.lua, the queue that of fair_queue.lua. A place
-- that was lost, because the queue was or because the request was silent for too
-- long, is given back: the request brings it along.
--
-- KEYS: the lock, the places, the deadlines, the mark of this request being
-- withdrawn or released
-- ARGV: owner, request, lease in ms, heartbeat in ms, 1 to take a place, the
-- place of this request or 0, channel
-- Returns {1, the owner's grants, 0, 1 if the place had been lost}, or {0, ms
-- until the lock runs out for the first in the queue, or until the first loses
-- its place if the lock is free, or 0; the place or 0; 1 if it had been lost}.
local fields = redis.call('HGETALL', KEYS[1])
local queued = redis.call('ZSCORE', KEYS[2], ARGV[2])
local mine = tonumber(queued or ARGV[6])
local holder, ends, others, last, over = nil, 0, 0, 0, {}
for i = 1, #fields, 2 do
  if fields[i] == 'owner' then
    holder = fields[i + 1]
  elseif fields[i] ~= 'token' and fields[i] ~= 'inbox' then
    local this = tonumber(fields[i + 1])
    if this <= now then
      over[#over + 1] = fields[i]
    else
      last = math.max(last, this)
      if fields[i] == ARGV[2] then ends = this else others = others + 1 end
    end
  end
end
if redis.call('EXISTS', KEYS[4]) == 1 then return {0, 0, 0} end

local held = last > 0
local lost = mine > 0 and not queued and ends == 0 and 1 or 0
local head, place = first()
local before = not head or (mine > 0 and mine <= place) -- no other is before us
if held and holder == ARGV[1] or not held and before then
  leave(ARGV[2])
  if not held then redis.call('DEL', KEYS[1]) end
  for _, request in ipairs(over) do redis.call('HDEL', KEYS[1], request) end
  ends = math.max(ends, now + tonumber(ARGV[3])) -- a late copy doesn't undo an extension
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], ARGV[2], string.format('%.0f', ends))
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', math.max(last, ends)))
  -- The first in the queue now learns of a longer lease by its next poll.
  head = first()
  if head and tonumber(ARGV[3]) < tonumber(ARGV[4]) then redis.pcall('PUBLISH', ARGV[7], '=' .. head) end
  return {1, others + 1, 0, lost}
end

if ARGV[5] == '1' then
  if mine == 0 then
    local newest = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
    mine = math.max(time[1] * 1000000 + time[2], tonumber(newest or 0) + 1)
  end
  redis.call('ZADD', KEYS[2], string.format('%.0f', mine), ARGV[2])
  redis.call('ZADD', KEYS[3], string.format('%.0f', now + tonumber(ARGV[4])), ARGV[2])
  local newest = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
  for i = 2, 3 do redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', tonumber(newest))) end
end
if held then return {0, before and last - now or 0, mine, lost} end
local deadline = tonumber(redis.call('ZSCORE', KEYS[3], head))
redis.pcall('PUBLISH', ARGV[7], '=' .. head)
return {0, deadline - now, mine, lost}
