-- Says how many permits there are. Those that are taken stay so.
--
-- KEYS: see semaphore.lua
-- ARGV: "try" to say it if nobody has, "set" or "add"; permits, the most that
-- there can be, life of the mark in ms, channel
-- Returns 1, or 0 if somebody has said it.
if done then return tonumber(done) end
if ARGV[1] == 'try' and size then return 0 end
if ARGV[1] == 'add' and not size then return redis.error_reply('NOTSET nobody has said how many permits there are') end
local wanted = tonumber(ARGV[2])
if ARGV[1] == 'add' then wanted = size + wanted end
if wanted < 0 or wanted > tonumber(ARGV[3]) then
  return redis.error_reply('BADSIZE there are ' .. text(size) .. ' permits, and would be ' .. text(wanted))
end
redis.call('HSET', KEYS[1], 'size', text(wanted))
settle()
redis.call('SET', KEYS[5], 1, 'PX', ARGV[4])
redis.pcall('PUBLISH', ARGV[5], 'all')
return 1
