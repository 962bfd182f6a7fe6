-- Grants the lock, also once more to its holder, or says when it runs out and
-- draws a ticket.
--
-- A lock that ran out is granted to the first in the queue.
--
-- KEYS: the lock, the mark of this request being withdrawn or released, the
-- tickets, the last token
-- ARGV: owner, request, lease in ms, ms for which the last token is remembered (0:
-- not fenced), the ticket or "" to draw none, 1 if this request was refused before
-- Returns {1, the owner's grants, the token or 0}, or {0, ms until the lock runs
-- out, 0, the time in ms, 1 if the ticket wasn't in the queue}.
local token, others, mine, last, over = nil, 0, 0, 0, {}

if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) > 0 then
  local fields = redis.call('HGETALL', KEYS[1])
  local holder, inbox
  for i = 1, #fields, 2 do
    if fields[i] == 'owner' then
      holder = fields[i + 1]
    elseif fields[i] == 'token' then
      token = fields[i + 1]
    elseif fields[i] == 'inbox' then
      inbox = fields[i + 1]
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
  local function refuse(ms)
    local drawn = 0
    if ARGV[5] ~= '' then
      drawn = redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', time[1] * 1000000 + time[2]), ARGV[5])
      redis.call('PEXPIRE', KEYS[3], ticketLife)
    end
    return {0, ms, 0, now, drawn}
  end
  local held, marked = last > 0, redis.call('EXISTS', KEYS[2]) == 1
  if marked then return {0, math.max(last - now, 0), 0, now, 0} end
  if held and holder ~= ARGV[1] then return refuse(last - now) end
  if not held then
    token, over = nil, {}
    if #fields > 0 then redis.call('DEL', KEYS[1]) end
    if inbox and (ARGV[5] == '' or inbox ~= inboxOf(ARGV[5])) then -- nobody came for the lock
      for _, ticket in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
        if inboxOf(ticket) == inbox then redis.call('ZREM', KEYS[3], ticket) end
      end
    end
    local ms = handOver(ARGV[5])
    if ms then return refuse(ms) end
  end
  if ARGV[5] ~= '' then redis.call('ZREM', KEYS[3], ARGV[5]) end
end

if ARGV[4] == '0' then
  token = nil
else
  token = token or newToken(ARGV[4])
end
for _, request in ipairs(over) do redis.call('HDEL', KEYS[1], request) end
-- A copy of the request that was late must not take back an extension.
mine = math.max(mine, now + tonumber(ARGV[3]))
last = math.max(last, mine)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], ARGV[2], string.format('%.0f', mine))
if token then redis.call('HSET', KEYS[1], 'token', token) end
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
return {1, others + 1, tonumber(token or 0)}
