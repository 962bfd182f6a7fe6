-- Ends all grants of the lock, of any owner, and tells the first in the
-- queue, which stays as it is.
--
-- The mark makes a repetition, whose reply was lost, leave the next holder alone.
--
-- KEYS: the lock, the places, the deadlines, the mark
-- ARGV: channel, life of the mark in ms
-- Returns 1 if there was a lock, else 0.
if KEYS[4] and redis.call('EXISTS', KEYS[4]) == 1 then return 1 end
local held = redis.call('HEXISTS', KEYS[1], 'owner')
if held == 1 then
  redis.call('DEL', KEYS[1])
  if KEYS[4] then redis.call('SET', KEYS[4], 1, 'PX', ARGV[2]) end
end
local head = first()
if head then redis.pcall('PUBLISH', ARGV[1], '=' .. head) end
return held
