-- Ends the grant of a lock that is a string, for which none waits: a first request (see grant.askFirst)
-- looks at no tickets, so there may be some. MGET gives nothing for a key of another type, where GET fails. The lines
-- that follow deal with all other releases.
if redis.call('EXISTS', KEYS[3]) == 0 and redis.call('MGET', KEYS[1])[1] == ARGV[1] then
  redis.call('DEL', KEYS[1])
  if ARGV[2] ~= '0' then redis.call('SET', KEYS[2], 1, 'PX', 15000) end
  return 1
end
