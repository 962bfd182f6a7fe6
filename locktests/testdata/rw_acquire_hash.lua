-- The script rw_acquire of a version that kept all grants in a hash.
-- What all steps on a read-write lock begin with.
--
-- A read-write lock is a hash: for each grant a field "read:<request>:<owner>"
-- or "write:<request>:<owner>" with the server's time in ms at which that grant
-- ends, for each writer that waits and is preferred a field
-- "wait:<request>:<owner>" with the time until which it keeps new readers out,
-- and field "ends" with the time at which the key ends, which is never before
-- any of those.
--
-- KEYS: the lock
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- each calls visit with every field, its kind, its owner and its end. The result
-- is an error if the key is a lock of another kind.
local function each(visit)
  local fields = redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do
    if fields[i] ~= 'ends' then
      local what, owner = string.match(fields[i], '^(%l+):[^:]*:(.*)$')
      if not what then return redis.error_reply('WRONGTYPE the lock of that name is no read-write lock') end
      visit(fields[i], what, owner, tonumber(fields[i + 1]))
    end
  end
end

-- change removes fields, and makes the key end with the last of the others; with
-- all of them gone, at once.
local function change(gone, last)
  if last <= now then
    redis.call('DEL', KEYS[1])
    return
  end
  for _, field in ipairs(gone) do redis.call('HDEL', KEYS[1], field) end
  redis.call('HSET', KEYS[1], 'ends', string.format('%.0f', last))
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
end

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
