-- Ends one grant. The mark that it leaves for a while makes a repetition of
-- the same release, whose reply was lost, succeed as well, and refuses a copy
-- of the request to acquire that is still on its way.
--
-- KEYS: the lock, the mark
-- ARGV: request, life of the mark in ms, channel, 1 to leave the mark in any case
-- Returns 1 if the grant is released, 0 if it was not held (any longer).
if redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fields = redis.call('HGETALL', KEYS[1])
local mine, last = nil, 0
for i = 1, #fields, 2 do
  if fields[i] == ARGV[1] then
    mine = tonumber(fields[i + 1])
  elseif fields[i] ~= 'owner' and fields[i] ~= 'token' then
    last = math.max(last, tonumber(fields[i + 1]))
  end
end
local held = mine ~= nil and mine > now
-- A server without memory deletes, and having deleted, sets.
redis.call('HDEL', KEYS[1], ARGV[1])
if held or ARGV[4] == '1' then redis.call('SET', KEYS[2], 1, 'PX', ARGV[2]) end
if mine == nil then return 0 end
if last > now then
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
else
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[3], '1')
end
return held and 1 or 0
