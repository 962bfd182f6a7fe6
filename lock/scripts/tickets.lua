-- The queue of a plain lock: these lines stand before each script that may hand
-- the lock over, and after those of hash.lua.
--
-- It is a sorted set of tickets, by the server's time in us at which they were
-- drawn. A ticket says all that a grant needs: the request, the lease in ms, the ms
-- for which the last token is remembered (0: no token), 1 if the server can count
-- who hears a message, the length of the channel on which the client hears, the
-- channel, and the owner. Who waits draws its ticket again with every request, and
-- the key lives for ticketLife ms after the last one.
--
-- A lock that is handed over for less than was asked for has a field "inbox" too:
-- who gets it extends the lease in time. The lock is there for a while after that
-- lease, so that whoever comes then learns that nobody hears on that channel.
--
-- KEYS: the lock, the mark, the tickets, the last token
local ticketLife, silence, markLife, handed = 15000, 10000, 15000, 5000

-- A token is the server's time in us, or one more than the last token where that
-- is greater, so that tokens grow even when the last one was forgotten.
local function newToken(life)
  local latest = tonumber(redis.call('GET', KEYS[4])) or 0
  local token = string.format('%.0f', math.max(time[1] * 1000000 + time[2], latest + 1))
  redis.call('SET', KEYS[4], token, 'PX', life)
  return token
end

local function inboxOf(ticket)
  local length, rest = string.match(ticket, '^%S+ %d+ %d+ %d (%d+) (.*)$')
  return string.sub(rest, 1, length), string.sub(rest, length + 1)
end

-- handOver grants a free lock to the first in the queue whom a message reaches, and
-- returns for how many ms; nothing if there is none before own.
local function handOver(own)
  while true do
    local ticket = redis.call('ZPOPMIN', KEYS[3])[1]
    if not ticket or ticket == own then return nil end
    local request, lease, life, counts = string.match(ticket, '^(%S+) (%d+) (%d+) (%d)')
    local inbox, owner = inboxOf(ticket)
    local ms, short = math.min(tonumber(lease), handed), tonumber(lease) > handed
    local ends = string.format('%.0f', now + ms)
    local token = life ~= '0' and newToken(life)
    local grant = table.concat({'=' .. request, string.format('%.0f', now), ends, token or '0', KEYS[1]}, ' ')
    if redis.call('PUBLISH', inbox, grant) > 0 or counts == '0' then
      redis.call('HSET', KEYS[1], 'owner', owner, request, ends)
      if token then redis.call('HSET', KEYS[1], 'token', token) end
      if short then redis.call('HSET', KEYS[1], 'inbox', inbox) end
      redis.call('PEXPIREAT', KEYS[1], short and string.format('%.0f', ends + silence) or ends)
      return ms
    end
  end
end
