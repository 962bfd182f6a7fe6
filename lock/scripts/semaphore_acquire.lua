-- Takes permits, all or none: for a time, or for good. No request overtakes those that
-- wait, so that a request for many permits isn't starved by those for few.
--
-- KEYS: see semaphore.lua
-- ARGV: request, permits or 0 for all that are there, lease in ms or 0 for good,
-- 1 to be queued if it is refused, ms for which who asks counts as alive, life of
-- the mark in ms, channel
-- Returns {1, permits}, or {0, ms until the grant that ends next or until the
-- first in the queue doesn't count as alive; 0 if there is neither}.
local request, n, length = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local grant = ARGV[2] .. ':' .. request
if done == '0' or done == '-' then return {0, 0} end
if done and takenThen() then
  -- WAIT awaits what its own connection wrote, and a copy may come on another one: so a copy writes, too.
  redis.call('SET', KEYS[5], done, 'PX', ARGV[6])
  return {1, takenThen()}
end
if not size or done then return redis.error_reply(notSet) end
local ends = tonumber(redis.call('ZSCORE', KEYS[2], grant)) or 0
local held = ends > now
if not held and n > size then return redis.error_reply('TOOMANY there are ' .. text(size)) end

if not held then
  local free = size - taken - leased
  if n == 0 then n = free end
  local head, alive = first()
  if free < math.max(n, 1) or (head and head ~= request) then
    if #over > 0 then settle() end
    if ARGV[4] == '1' then
      redis.call('ZADD', KEYS[3], 'NX', text(time[1] * 1000000 + time[2]), request)
      redis.call('HSET', KEYS[4], request, text(now + tonumber(ARGV[5])))
      redis.call('PEXPIRE', KEYS[3], ARGV[5])
      redis.call('PEXPIRE', KEYS[4], ARGV[5])
    end
    if head and head ~= request then return {0, alive - now} end
    local nearest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
    return {0, nearest and tonumber(nearest) - now or 0}
  end
end

leave(request)
if length == 0 then
  taken = taken + n
  redis.call('SET', KEYS[5], text(n) .. ' ' .. round, 'PX', ARGV[6])
else
  if not held then leased = leased + n end
  -- A copy of the request that was late must not take back an extension.
  lease(grant, math.max(ends, now + length))
end
settle()
wake(ARGV[7])
return {1, n}
