-- Grants one side of a read-write lock, also once more to an owner that holds
-- it, or says when it may be free.
--
-- KEYS: the lock, the mark of this request being withdrawn or released
-- ARGV: read or write, request, owner, lease in ms, ms for which a refused
-- writer keeps new readers out, or 0
-- Returns {1, the owner's grants of that side}, {0, ms until no grant is in the
-- way}, or {-1, 0} to a writer that holds the read side only.
local side, me = ARGV[1], ':' .. ARGV[2] .. ':' .. ARGV[3]
local grant, place, count = side .. me, 'wait' .. me, 'reads:' .. ARGV[3]
look()
if redis.call('EXISTS', KEYS[2]) == 1 then return {0, 0} end
clear()
local granted = endOf(side, grant)
local own = {read = -(score(count) or 0), write = 0}
local others, writer = longest('write') -- when the writes of another owner end
if writer and ownerOf(writer) == ARGV[3] then own.write, others = live('write'), 0 end

local blocked = 0
if granted > 0 then
  blocked = 0
elseif side == 'read' then
  -- An owner that is inside doesn't wait for those outside.
  if own.read + own.write == 0 then blocked = math.max(others, final('wait')) end
elseif own.write == 0 and own.read > 0 then
  return {-1, 0}
elseif own.write == 0 then
  blocked = math.max(others, final('read'))
end
if blocked > 0 and ARGV[5] == '0' then return {0, blocked - now} end

if blocked > 0 then
  crowded = true
  redis.call('ZADD', KEYS[1], text(base.wait + now + ARGV[5]), place)
  settle()
  return {0, blocked - now}
end
if granted == 0 then own[side] = own[side] + 1 end
-- A copy of the request that was late must not take back an extension.
local ends = base[side] + math.max(granted, now + ARGV[4])
if side == 'read' then
  redis.call('ZADD', KEYS[1], text(ends), grant, text(-own.read), count)
else
  crowded = true
  redis.call('ZADD', KEYS[1], text(ends), grant)
  redis.call('ZREM', KEYS[1], place)
end
settle()
return {1, own[side]}
