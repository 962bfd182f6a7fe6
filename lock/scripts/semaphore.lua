-- Every script on a semaphore begins with this. It reads, and writes nothing;
-- a key of the wrong type shows here.
--
-- A semaphore is a hash without an end: "size" is how many permits there are,
-- "taken" how many of them are taken for good, and "leased" how many for a time.
-- "round" tells it from one that is set later under the same name.
-- The latter are also a sorted set: a grant as "permits:request", by the
-- server's time in ms at which it ends. That key lives as long as its last
-- grant; when it is gone nothing is leased.
--
-- Who waits stands in a queue, a sorted set of requests by when they came, and
-- notes in a hash, each time that it asks, until when it counts as alive. Both
-- keys live until the last one in them doesn't.
--
-- A mark remembers for a while what a request came to: the permits that it took
-- for good and the round in which it did, as "3 round"; "0" after it was released, "-" after it
-- was withdrawn and not held; or what it returned.
--
-- KEYS: the semaphore, its grants, its queue, who is alive, the mark
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local notSet = 'NOTSET the number of permits was not set, or the semaphore was deleted since'

local function text(number) return string.format('%.0f', number) end
local function permits(grant) return tonumber(string.match(grant, '^%d+')) end

local fields = redis.call('HMGET', KEYS[1], 'size', 'taken', 'leased', 'round')
local size, taken, leased, round = tonumber(fields[1]), tonumber(fields[2]) or 0, tonumber(fields[3]), fields[4] or ''
local done = redis.call('GET', KEYS[5])
redis.call('ZCARD', KEYS[3])
redis.call('HLEN', KEYS[4])
if not leased or redis.call('EXISTS', KEYS[2]) == 0 then
  leased = 0
  for _, grant in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do leased = leased + permits(grant) end
end
local over = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text(now))
for _, grant in ipairs(over) do leased = leased - permits(grant) end

-- takenThen is how many permits the request took for good, by its mark; nil if none of
-- this round.
local function takenThen()
  local n, when = string.match(done or '', '^(%d+) (.*)$')
  return when == round and tonumber(n) or nil
end

-- settle writes down what is taken, without the grants that are over.
local function settle()
  redis.call('HSET', KEYS[1], 'taken', text(taken), 'leased', text(leased))
  if #over > 0 then redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(now)) end
end

-- lease makes a grant end then.
local function lease(grant, ends)
  redis.call('ZADD', KEYS[2], text(ends), grant)
  redis.call('PEXPIREAT', KEYS[2], redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2])
end

local function leave(request)
  redis.call('ZREM', KEYS[3], request)
  redis.call('HDEL', KEYS[4], request)
end

-- first returns the first in the queue, and until when it counts as alive. Those
-- before it that don't are thrown out.
local function first()
  while true do
    local request = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    if not request then return nil, 0 end
    local alive = tonumber(redis.call('HGET', KEYS[4], request)) or 0
    if alive > now then return request, alive end
    leave(request)
  end
end

-- wake tells the first in the queue that there are permits.
local function wake(channel)
  local request = first()
  if request and size > taken + leased then redis.pcall('PUBLISH', channel, '=' .. request) end
end
