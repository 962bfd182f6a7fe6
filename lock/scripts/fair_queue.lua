-- The queue of a fair lock: these lines stand before each script that changes it,
-- and after those of hash.lua.
--
-- It is two sorted sets of requests. Places: when a request first arrived, in us
-- of the server's clock, or one more than the last place where that is greater.
-- Deadlines: the server's time in ms at which a request loses its place unless it
-- is repeated before. Both keys live as long as the last deadline.
--
-- KEYS: the lock, the places, the deadlines
redis.call('ZCARD', KEYS[2]) -- so that a wrong type fails before the first write
local silent = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now))

local function leave(request)
  redis.call('ZREM', KEYS[2], request)
  redis.call('ZREM', KEYS[3], request)
end

-- first takes those out who were silent for too long, or have no deadline though
-- they are first, and returns who is first then, and its place.
local function first()
  for _, request in ipairs(silent) do leave(request) end
  silent = {}
  while true do
    local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    if not head[1] or redis.call('ZSCORE', KEYS[3], head[1]) then return head[1], tonumber(head[2]) end
    redis.call('ZREM', KEYS[2], head[1])
  end
end
