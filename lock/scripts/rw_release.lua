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
local before = redis.call('GET', KEYS[2])
if before then return tonumber(before) end
local side, me = ARGV[1], ':' .. ARGV[2] .. ':' .. ARGV[3]
look()
local held = endOf(side, side .. me) > now
-- A server without memory deletes, and having deleted, sets.
local left = remove(side .. me)
if held or ARGV[7] == '1' then redis.call('SET', KEYS[2], held and 1 or 0, 'PX', ARGV[4]) end
if side == 'write' then left = remove('wait' .. me) or left end
if not left then return 0 end
clear()
settle()
if final('write') == 0 then
  if side == 'write' and final('wait') == 0 then redis.pcall('PUBLISH', ARGV[5], 'all') end
  if final('read') == 0 then redis.pcall('PUBLISH', ARGV[6], '1') end
end
return held and 1 or 0
