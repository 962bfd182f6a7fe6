-- What is under the key of the lock: these lines stand before those of hash.lua.
local kind = redis.call('TYPE', KEYS[1]).ok
