-- Grants the lock, also once more to its holder, or says when it runs out and
-- draws a ticket.
--
-- A lock that ran out is granted to the first in the queue.
--
-- KEYS: the lock, the tickets, the last token, the mark of this request being
-- withdrawn or released
-- ARGV: "held REQUEST OWNER", lease in ms, the ticket or "" to draw none, ms for
-- which the last token is remembered (0: not fenced)
-- Returns {1, the owner's grants, the token or 0}, or 1 for {1, 1, 0}; or {0, ms
-- until the lock runs out, 0, the number of the ticket in the queue or 0}; with a fifth value if the user may not
-- publish: why.
local request, owner = string.match(ARGV[1], '^held (%S+) (.*)$')
local draws, fenced = ARGV[3] ~= '', ARGV[4] ~= '0'
local token, others, mine, last, over = nil, 0, 0, 0, {}

if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[4]) > 0 then
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
        if fields[i] == request then mine = ends else others = others + 1 end
      end
    end
  end
  local function refuse(ms)
    local number = 0
    if draws then
      number = redis.call('ZSCORE', KEYS[2], ARGV[3])
      if not number then
        number = string.format('%.0f', time[1] * 1000000 + time[2])
        redis.call('ZADD', KEYS[2], number, ARGV[3])
      end
      redis.call('PEXPIRE', KEYS[2], ticketLife)
    elseif redis.call('ZADD', KEYS[2], 'NX', string.format('%.0f', (now + noTicket) * 1000), '-') == 1 then
      redis.call('PEXPIRE', KEYS[2], math.max(redis.call('PTTL', KEYS[2]), 2 * noTicket))
    end
    return {0, ms, 0, tonumber(number), denied}
  end
  local held, marked = last > 0, redis.call('EXISTS', KEYS[4]) == 1
  if marked then return {0, math.max(last - now, 0), 0, 0} end
  if held and holder ~= owner then return refuse(last - now) end
  if not held then
    token, over = nil, {}
    if #fields > 0 then redis.call('DEL', KEYS[1]) end
    if inbox and (not draws or inbox ~= inboxOf(ARGV[3])) then -- no client came for the lock
      for _, ticket in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
        if #ticket > 1 and inboxOf(ticket) == inbox then redis.call('ZREM', KEYS[2], ticket) end
      end
    end
    local free = openFor()
    if free > 0 and draws then return refuse(free) end
    local ms = free == 0 and handOver(ARGV[3])
    if ms then return refuse(ms) end
  end
  if draws then redis.call('ZREM', KEYS[2], ARGV[3]) end
end

token = fenced and (token or newToken(ARGV[4])) or nil
for _, one in ipairs(over) do redis.call('HDEL', KEYS[1], one) end
-- A copy of the request that was late must not take back an extension.
mine = math.max(mine, now + tonumber(ARGV[2]))
last = math.max(last, mine)
redis.call('HSET', KEYS[1], 'owner', owner, request, string.format('%.0f', mine))
if token then redis.call('HSET', KEYS[1], 'token', token) end
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
return {1, others + 1, tonumber(token or 0), denied and 0, denied}
