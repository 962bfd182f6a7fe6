-- The queue of a plain lock: these lines stand before each script that may hand
-- the lock over, and after those of hash.lua.
--
-- It is a sorted set of tickets, each with a number, the server's time in us at which
-- it was drawn. A ticket says all that a grant needs: the request, the lease in ms, the ms
-- for which the last token is remembered (0: no token), 1 if the server can tell
-- whether the client hears a message, the length of the channel on which the client hears, the
-- channel, and the owner. Who waits draws its ticket again with every request, and
-- the key lives for ticketLife ms after the last one.
--
-- A lock that is handed over has a field "inbox" too. It is there for a while after its
-- lease, so that the next request learns that no client hears on that channel.
--
-- A request without a ticket, which is refused, draws one for all of them: "-", which
-- gets its turn noTicket ms later. When that comes, the lock is free for a moment for
-- requests without a ticket: the set has "+", whose number is the end of that by the server's
-- time in us, less than 0 so that it comes first. The others are refused until then.
--
-- KEYS: the lock, the tickets, the last token
local noTicket, moment = 1000, 50
local ticketLife, silence, markLife = 15000, 10000, 15000

-- A token is the server's time in us, or one more than the last token where that
-- is greater, so that tokens grow even when the last one was forgotten.
local function newToken(life)
  local latest = tonumber(redis.call('GET', KEYS[3])) or 0
  local token = string.format('%.0f', math.max(time[1] * 1000000 + time[2], latest + 1))
  redis.call('SET', KEYS[3], token, 'PX', life)
  return token
end

local function inboxOf(ticket)
  local length, rest = string.match(ticket, '^%S+ %d+ %d+ %d (%d+) (.*)$')
  return string.sub(rest, 1, length), string.sub(rest, length + 1)
end

-- publish publishes a message, and reports whether the user may do that; denied is why not.
local denied
local function publish(channel, text)
  local sent = redis.pcall('PUBLISH', channel, text)
  if type(sent) == 'table' and sent.err then denied = sent.err end
  return not denied
end

-- hears reports whether the client of a ticket is subscribed at this server, which is
-- the one that grants the lock. What PUBLISH returns is no answer to that: it counts
-- patterns as well, and comes after the message, which a replica's subscribers hear
-- too. Where the server may not be asked, no client is taken to hear.
local function hears(inbox)
  local count = redis.pcall('PUBSUB', 'NUMSUB', inbox)
  return not count.err and count[2] > 0
end

-- openFor returns for how many ms the lock is free for requests without a ticket alone.
-- An end that is further away was written by a clock that was ahead of this one.
local function openFor()
  local left = math.ceil(-(redis.call('ZSCORE', KEYS[2], '+') or 0) / 1000) - now
  return left > 0 and left <= moment and left or 0
end

-- open begins that moment, and has the first client ask when it is over.
local function open()
  redis.call('ZADD', KEYS[2], string.format('%.0f', -(now + moment) * 1000), '+')
  redis.call('PEXPIRE', KEYS[2], ticketLife)
  for _, ticket in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if ticket ~= '+' then
      local inbox = inboxOf(ticket)
      if hears(inbox) then
        publish(inbox, '=' .. string.match(ticket, '^%S+'))
        return
      end
    end
  end
end

-- handOver grants a free lock to the first in the queue whose client hears of it, and
-- returns for how many ms; nothing if there is none before own, which is '' for a request
-- without a ticket, and nil for a release. The grant is written
-- before it is published, so a client that hears a message was granted what it says. The
-- message has the number of the ticket: it is of no use to a client whose last refusal
-- had another one, for then the ticket was served and drawn again in between.
local function handOver(own)
  while true do
    local head = redis.call('ZPOPMIN', KEYS[2])
    if head[1] == '+' then head = redis.call('ZPOPMIN', KEYS[2]) end
    local ticket, number = head[1], head[2]
    if not ticket or ticket == own then return nil end
    if ticket == '-' then
      if own == '' or redis.call('ZCARD', KEYS[2]) == 0 then return nil end
      open()
      return own and moment or nil
    end
    local request, lease, life, counts = string.match(ticket, '^(%S+) (%d+) (%d+) (%d)')
    local inbox, owner = inboxOf(ticket)
    if counts == '0' or hears(inbox) then
      local ms = tonumber(lease)
      local token = life ~= '0' and newToken(life)
      local fields = {'owner', owner, 'inbox', inbox, request, string.format('%.0f', now + ms)}
      if token then fields[7], fields[8] = 'token', token end
      redis.call('HSET', KEYS[1], unpack(fields))
      redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', now + ms + silence))
      if publish(inbox, table.concat({'=' .. request, string.format('%.0f', number), ms, token or '0', KEYS[1]}, ' ')) then return ms end
      redis.call('DEL', KEYS[1]) -- those who wait find it by asking
      redis.call('ZADD', KEYS[2], string.format('%.0f', number), ticket)
      return nil
    end
  end
end
