-- Grants a lock without a holder and a waiter: by far the most of all requests.
-- Such a lock is a string, "held REQUEST OWNER", which lives as long as the grant;
-- hash.lua says what it is as soon as there is more to say of it. The lines that
-- follow deal with all other requests.
--
-- A request that is refused makes the lock a hash.
if ARGV[4] == '0' and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[4]) == 0 then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
