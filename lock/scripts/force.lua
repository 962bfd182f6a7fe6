-- Ends all grants of the lock, whoever holds it.
--
-- KEYS: the lock
-- ARGV: channel
-- Returns 1 if there was a lock, else 0.
if redis.call('HEXISTS', KEYS[1], 'owner') == 0 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[1], 'released')
return 1
