-- Ends the grant of a lock that is a string, for which none waits: a first request (see grant.askFirst)
-- looks at no tickets, so there may be some. The lines that follow deal with all other releases.
if plain == ARGV[1] and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  if ARGV[2] then redis.call('SET', KEYS[4], 1, 'PX', 15000) end
  return 1
end
