-- Says how many permits there are. Those that are taken stay so.
--
-- KEYS: see semaphore.lua
-- ARGV: "try" to set it unless it is set, "set" or "add"; permits, the most that
-- there can be, life of the mark in ms, channel, the round of a semaphore that is new
-- Returns 1, or 0 if it was set.
if done then return tonumber(done) end
if ARGV[1] == 'try' and size then return 0 end
if ARGV[1] == 'add' and not size then return redis.error_reply(notSet) end
local wanted = tonumber(ARGV[2])
if ARGV[1] == 'add' then wanted = size + wanted end
if wanted < 0 or wanted > tonumber(ARGV[3]) then
  return redis.error_reply('BADSIZE there are ' .. text(size) .. ' permits, and would be ' .. text(wanted))
end
redis.call('HSET', KEYS[1], 'size', text(wanted))
if not size then redis.call('HSET', KEYS[1], 'round', ARGV[6]) end
settle()
redis.call('SET', KEYS[5], 1, 'PX', ARGV[4])
redis.pcall('PUBLISH', ARGV[5], 'all')
return 1
