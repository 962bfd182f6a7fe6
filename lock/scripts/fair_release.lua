-- Ends one grant and leaves a mark, as release.lua does, and takes the request out
-- of the queue if it is withdrawn. Tells the first in the queue that the lock is
-- free, or that it is the first.
--
-- KEYS: the lock, the places, the deadlines, the mark
-- ARGV: request, life of the mark in ms, channel, 1 to withdraw: leave the mark
-- and the queue in any case
-- Returns 1 if the grant is released, 0 if it was not held (any longer).
local before = redis.call('GET', KEYS[4])
if before then return tonumber(before) end
local fields = redis.call('HGETALL', KEYS[1])
local mine, last = 0, 0
for i = 1, #fields, 2 do
  if fields[i] == ARGV[1] then
    mine = tonumber(fields[i + 1])
  elseif fields[i] ~= 'owner' and fields[i] ~= 'token' and fields[i] ~= 'inbox' then
    last = math.max(last, tonumber(fields[i + 1]))
  end
end
local held = mine > now
if not held and ARGV[4] ~= '1' then return 0 end

local formerly = first()
-- A server without memory deletes, and having deleted, sets.
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('SET', KEYS[4], held and 1 or 0, 'PX', ARGV[2])
leave(ARGV[1])
if last <= now then
  redis.call('DEL', KEYS[1])
elseif mine > 0 then
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
end
local head = first()
if head and (last <= now or head ~= formerly) then redis.pcall('PUBLISH', ARGV[3], '=' .. head) end
return held and 1 or 0
