-- The lock if it is a string, else false: these lines stand before those of sole.lua and hash.lua.
-- MGET gives nothing for a key of another type, where GET fails.
local plain = redis.call('MGET', KEYS[1])[1]
