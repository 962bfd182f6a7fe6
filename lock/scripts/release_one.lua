-- Ends one grant by the key of its lock alone: for while its slot moves to another server, which
-- refuse a script that names keys of which some are not there. It leaves no mark, so a late copy
-- of the request to acquire may get the lock until its lease ends, and hands the lock to no
-- ticket: those who wait find it by asking.
--
-- KEYS: the lock
-- ARGV: the request, 1 to withdraw
-- Returns 1 if the grant is released, or 0 if a request that is withdrawn was not granted. Where a
-- grant isn't there, only its mark can say whether it was released before.
local request = ARGV[1]
local function notHeld() return ARGV[2] == '1' and 0 or redis.error_reply('TRYAGAIN it is not held') end
if plain then
  if string.match(plain, '^held (%S+) ') ~= request then return notHeld() end
else
  local mine = redis.call('HGET', KEYS[1], request)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if not mine or tonumber(mine) <= now then return notHeld() end
  local fields, last = redis.call('HGETALL', KEYS[1]), 0
  for i = 1, #fields, 2 do
    if fields[i] ~= 'owner' and fields[i] ~= 'token' and fields[i] ~= 'inbox' and fields[i] ~= request then
      last = math.max(last, tonumber(fields[i + 1]))
    end
  end
  if last > now then
    redis.call('HDEL', KEYS[1], request)
    redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
    return 1
  end
end
redis.call('DEL', KEYS[1])
return 1
