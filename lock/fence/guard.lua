-- Accepts a fencing token that is not smaller than the greatest one so far, and
-- remembers it; with a value, writes that in the same step.
--
-- Tokens are compared as decimal strings: numbers here are exact up to 2^53 only.
--
-- KEYS: the greatest token, and the key to write
-- ARGV: token, ms for which it is remembered or 0 for good, and the value
-- Returns "" if the token is accepted, else the greatest one.
local token, greatest = ARGV[1], redis.call('GET', KEYS[1]) or ''
if #token < #greatest or (#token == #greatest and token < greatest) then return greatest end
if ARGV[2] == '0' then
  redis.call('SET', KEYS[1], token)
else
  redis.call('SET', KEYS[1], token, 'PX', ARGV[2])
end
if KEYS[2] then redis.call('SET', KEYS[2], ARGV[3]) end
return ''
