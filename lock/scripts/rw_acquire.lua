-- Grants one side of a read-write lock, also once more to an owner that holds
-- it, or says when it may be free.
--
-- KEYS: the lock, the mark of this request being withdrawn or released
-- ARGV: read or write, request, owner, lease in ms, ms for which a refused
-- writer keeps new readers out, or 0
-- Returns {1, the owner's grants of that side}, {0, ms until no grant is in the
-- way}, or {-1, 0} to a writer that holds the read side only.
local side, me = ARGV[1], ':' .. ARGV[2] .. ':' .. ARGV[3]
local grant, place = side .. me, 'wait' .. me
local own, others = {read = 0, write = 0}, {read = 0, write = 0} -- grants, and when the last one ends
local granted, places, last, over = 0, 0, 0, {} -- granted: when this request ends
local wrong = each(function(field, what, owner, ends)
  if ends <= now or (field == place and side == 'write') then
    over[#over + 1] = field
    return
  end
  last = math.max(last, ends)
  if field == grant then
    granted = ends
  elseif what == 'wait' then
    places = math.max(places, ends)
  elseif owner == ARGV[3] then
    own[what] = own[what] + 1
  else
    others[what] = math.max(others[what], ends)
  end
end)
if wrong then return wrong end
if redis.call('EXISTS', KEYS[2]) == 1 then return {0, 0} end

local blocked = 0
if granted > 0 then
  blocked = 0
elseif side == 'read' then
  -- An owner that is inside doesn't wait for those outside.
  if own.read + own.write == 0 then blocked = math.max(others.write, places) end
elseif own.write == 0 and own.read > 0 then
  return {-1, 0}
else
  blocked = math.max(others.read, others.write)
end
if blocked > 0 and ARGV[5] == '0' then return {0, blocked - now} end

-- A copy of the request that was late must not take back an extension.
local field, ends = grant, math.max(granted, now + tonumber(ARGV[4]))
if blocked > 0 then field, ends = place, now + tonumber(ARGV[5]) end
change(over, math.max(last, ends))
redis.call('HSET', KEYS[1], field, string.format('%.0f', ends))
if blocked > 0 then return {0, blocked - now} end
return {1, own[side] + 1}
