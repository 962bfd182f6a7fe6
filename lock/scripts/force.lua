-- Ends all grants of the lock, of any owner, and hands it to the first in the
-- queue.
--
-- The mark makes a repetition, whose reply was lost, leave the next holder alone.
--
-- KEYS: the lock, the tickets, the last token, the mark
-- Returns 1 if there was a lock, else 0.
local before = redis.call('GET', KEYS[4])
if before then return tonumber(before) end
local fields, held = redis.call('HGETALL', KEYS[1]), 0
for i = 1, #fields, 2 do
  if fields[i] ~= 'owner' and fields[i] ~= 'token' and fields[i] ~= 'inbox' and tonumber(fields[i + 1]) > now then held = 1 end
end
if #fields == 0 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[4], held, 'PX', markLife)
handOver()
return held
