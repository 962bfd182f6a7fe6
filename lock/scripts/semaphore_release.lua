-- Ends one grant, or takes a request back: also the permits that it took for
-- good, and its place in the queue. The mark says to each later release whether the permits
-- were held, and refuses a copy of the request that is still on its way.
--
-- KEYS: see semaphore.lua
-- ARGV: request, permits, life of the mark in ms, channel, 1 to leave the mark in
-- any case
-- Returns 1 if the permits were given back, 0 if they were not held (any longer).
if done == '0' then return 1 end
if done == '-' then return 0 end
local grant = ARGV[2] .. ':' .. ARGV[1]
local ends = tonumber(redis.call('ZSCORE', KEYS[2], grant)) or 0
local held = size and (takenThen() or ends > now)
-- A server without memory deletes, and having deleted, sets.
leave(ARGV[1])
if held or ARGV[5] == '1' then redis.call('SET', KEYS[5], held and 0 or '-', 'PX', ARGV[3]) end
if not size then return 0 end
if takenThen() then
  taken = math.max(taken - takenThen(), 0)
elseif held then
  redis.call('ZREM', KEYS[2], grant)
  leased = leased - permits(grant)
end
settle()
wake(ARGV[4])
return held and 1 or 0
