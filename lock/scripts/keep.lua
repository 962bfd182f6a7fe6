-- Lets a client keep a lock that its waiters pass on, if nobody else has a ticket:
-- then the grant ends so many ms from now, as by extend.lua. Else it draws a ticket
-- for them, and the grant stays as it is.
--
-- A copy of this that is late does no harm: it extends what is held still, and
-- draws nothing once the grant is over, or once nobody needs the ticket any more.
--
-- KEYS: the lock, the mark of the ticket's request being withdrawn, the tickets
-- ARGV: the grant's request, ms from now, the ticket or "" to draw none
-- Returns {1, 1}, or {0, ms until the lock runs out, 0, the time in ms, 1 if the
-- ticket wasn't in the queue}; -1 ms if the grant is not held (any longer).
local fields = redis.call('HGETALL', KEYS[1])
local mine, last = nil, 0
for i = 1, #fields, 2 do
  if fields[i] == ARGV[1] then
    mine = tonumber(fields[i + 1])
  elseif fields[i] ~= 'owner' and fields[i] ~= 'token' and fields[i] ~= 'inbox' then
    last = math.max(last, tonumber(fields[i + 1]))
  end
end
if mine == nil or mine <= now then return {0, -1, 0, now, 0} end
if redis.call('EXISTS', KEYS[3]) == 0 then
  local ends = math.max(mine, now + tonumber(ARGV[2]))
  -- First what a server without memory does as well; then it does the rest too.
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', math.max(last, ends)))
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', ends))
  return {1, 1}
end
local drawn = 0
if ARGV[3] ~= '' and redis.call('EXISTS', KEYS[2]) == 0 then
  drawn = redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', time[1] * 1000000 + time[2]), ARGV[3])
  redis.call('PEXPIRE', KEYS[3], ticketLife)
end
return {0, math.max(last, mine) - now, 0, now, drawn}
