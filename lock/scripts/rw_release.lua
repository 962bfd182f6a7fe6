-- Ends one grant of a read-write lock, and takes the request out of those that
-- wait. About the mark see release.lua.
--
-- The end of the last write wakes all readers, also if its owner reads on, but
-- not if a preferred writer waits; the last preferred writer that gives up wakes
-- them too. The end of the last grant wakes a writer.
--
-- KEYS: the lock, the mark
-- ARGV: read or write, request, owner, life of the mark in ms, the channel of
-- the readers, that of the writers, 1 to leave the mark in any case
-- Returns 1 if the grant is released, 0 if it was not held (any longer).
if redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
local side, me = ARGV[1], ':' .. ARGV[2] .. ':' .. ARGV[3]
local grant, place = side .. me, 'wait' .. me
local live = {read = 0, write = 0, wait = 0}
local held, last, over, left = false, 0, {}, false
local wrong = each(function(field, what, _, ends)
  local mine = field == grant or (field == place and side == 'write')
  if mine then left = true end
  if field == grant then held = ends > now end
  if mine or ends <= now then
    over[#over + 1] = field
  else
    live[what] = live[what] + 1
    last = math.max(last, ends)
  end
end)
if wrong then return wrong end
-- A server without memory deletes, and having deleted, sets.
redis.call('HDEL', KEYS[1], grant)
if held or ARGV[7] == '1' then redis.call('SET', KEYS[2], 1, 'PX', ARGV[4]) end
if not left then return 0 end
change(over, last)
if live.write == 0 then
  if side == 'write' and live.wait == 0 then redis.pcall('PUBLISH', ARGV[5], 'all') end
  if live.read == 0 then redis.pcall('PUBLISH', ARGV[6], '1') end
end
return held and 1 or 0
