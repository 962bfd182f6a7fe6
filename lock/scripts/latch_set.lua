-- Starts a latch, unless there is one.
--
-- A latch is a hash: "count", what is left to count down, and "round", which
-- tells it from one that is set later under the same name. It has no end until
-- the count is 0; then it is remembered for a while.
--
-- KEYS: the latch, the mark of this request
-- ARGV: count, round, life of the mark in ms
-- Returns 1, or 0 if there is a latch.
if redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
if redis.call('HEXISTS', KEYS[1], 'count') == 1 then return 0 end
redis.call('HSET', KEYS[1], 'count', ARGV[1], 'round', ARGV[2])
redis.call('SET', KEYS[2], 1, 'PX', ARGV[3])
return 1
