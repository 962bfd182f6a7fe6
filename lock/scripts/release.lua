-- Ends one grant. The mark that it may leave for a while refuses a copy of the
-- request to acquire that is still on its way, and says to each later release whether
-- the grant was held: to a repetition, and to that of a hold that was withdrawn before.
--
-- A lock that is free then belongs to the first in the queue.
--
-- KEYS: the lock, the tickets, the last token, the mark unless there is none to leave or to find
-- ARGV: "held REQUEST OWNER"; with a mark: 1 to withdraw and so to leave it, or 2 to leave it if the
-- grant was held; a ticket that is not needed any more, or ""
-- Returns 1 if the grant is released, 0 if it was not held (any longer); {that, why} if the user may not publish.
local request = string.match(ARGV[1], '^held (%S+) ')
local fields = redis.call('HGETALL', KEYS[1])
local mine, last = nil, 0
for i = 1, #fields, 2 do
  if fields[i] == request then
    mine = tonumber(fields[i + 1])
  elseif fields[i] ~= 'owner' and fields[i] ~= 'token' and fields[i] ~= 'inbox' then
    last = math.max(last, tonumber(fields[i + 1]))
  end
end
local before = mine == nil and KEYS[4] and redis.call('GET', KEYS[4])
if before then return tonumber(before) end
local held = mine ~= nil and mine > now
-- A server without memory deletes, and having deleted, sets.
if mine ~= nil and last <= now then
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], request)
end
if ARGV[3] and ARGV[3] ~= '' then redis.call('ZREM', KEYS[2], ARGV[3]) end
if held and ARGV[2] == '2' or ARGV[2] == '1' then redis.call('SET', KEYS[4], held and 1 or 0, 'PX', markLife) end
if mine == nil then return 0 end
if last > now then
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
else
  handOver()
end
if denied then return {held and 1 or 0, denied} end
return held and 1 or 0
