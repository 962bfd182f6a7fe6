-- Ends the grant of a lock that is a string: nobody else holds it or waits for it.
-- The lines that follow deal with all other releases.
if redis.call('TYPE', KEYS[1]).ok == 'string' then
  local mine = 'held ' .. ARGV[1] .. ' '
  if string.sub(redis.call('GET', KEYS[1]), 1, #mine) == mine then
    redis.call('DEL', KEYS[1])
    if ARGV[3] ~= '0' then redis.call('SET', KEYS[2], 1, 'PX', 15000) end
    return 1
  end
end
