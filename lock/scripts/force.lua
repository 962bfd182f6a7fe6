-- Ends all grants of the lock, whoever holds it.
--
-- The mark makes a repetition, whose reply was lost, leave the next holder alone.
--
-- KEYS: the lock, the mark
-- ARGV: channel, life of the mark in ms
-- Returns 1 if there was a lock, else 0.
if KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
if redis.call('HEXISTS', KEYS[1], 'owner') == 0 then return 0 end
redis.call('DEL', KEYS[1])
if KEYS[2] then redis.call('SET', KEYS[2], 1, 'PX', ARGV[2]) end
redis.call('PUBLISH', ARGV[1], '1')
return 1
