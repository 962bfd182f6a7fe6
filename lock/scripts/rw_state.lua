-- What all steps on a read-write lock begin with.
--
-- A read-write lock is a sorted set. It has a member "read:<request>:<owner>" or
-- "write:<request>:<owner>" for each grant, and "wait:<request>:<owner>" for each
-- writer that waits and is preferred. The score is the server's time in ms at
-- which that ends, above the base of its kind: so those of a kind lie side by
-- side, and the last to end is the topmost. A member "reads:<owner>" has the number
-- of the owner's reads as its score, below 0. No request looks at all grants, and
-- all of them are one key, which ends with the last of them.
--
-- What is over is taken out before a grant is made. So all writes are of one
-- owner, and all reads beside a write are of the same owner.
--
-- KEYS: the lock
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kinds, base, span = {'read', 'write', 'wait'}, {read = 0, write = 2e15, wait = 4e15}, 2e15
local crowded = true -- whether there may be more than reads

local function text(number) return string.format('%.0f', number) end
local function ownerOf(member) return string.match(member, '^%l+:[^:]*:(.*)$') end
local function score(member) return tonumber(redis.call('ZSCORE', KEYS[1], member)) end

-- look finds out whether there are writes or places. It fails if the key is a lock of
-- another kind.
local function look() crowded = redis.call('ZCOUNT', KEYS[1], text(base.write), '+inf') > 0 end

-- endOf returns when a grant or place ends, or 0.
local function endOf(what, member) return (score(member) or base[what]) - base[what] end

-- longest returns when the last of a kind ends, and which that is; 0 if all are over.
local function longest(what)
  local above = 0
  if not crowded and what ~= 'read' then return 0 end
  if crowded and what ~= 'wait' then above = redis.call('ZCOUNT', KEYS[1], text(base[what] + span), '+inf') end
  local top = redis.call('ZREVRANGE', KEYS[1], above, above, 'WITHSCORES')
  local ends = (tonumber(top[2]) or 0) - base[what]
  if ends <= now then return 0 end
  return ends, top[1]
end

-- final returns only when.
local function final(what)
  local ends = longest(what)
  return ends
end

-- last returns when the last of all ends; 0 if all are over.
local function last() return math.max(final('read'), final('write'), final('wait')) end

-- live counts those of a kind that are not over.
local function live(what)
  return redis.call('ZCOUNT', KEYS[1], '(' .. text(base[what] + now), '(' .. text(base[what] + span))
end

-- over lists those of a kind that are over.
local function over(what)
  if not crowded and what ~= 'read' then return {} end
  return redis.call('ZRANGEBYSCORE', KEYS[1], text(base[what]), text(base[what] + now))
end

-- remove takes a grant or place out, and returns whether it was there.
local function remove(member)
  local was = redis.call('ZREM', KEYS[1], member) == 1
  if was and string.sub(member, 1, 5) == 'read:' then
    local count = 'reads:' .. ownerOf(member)
    local reads = (score(count) or 0) + 1
    if reads < 0 then redis.call('ZADD', KEYS[1], text(reads), count) else redis.call('ZREM', KEYS[1], count) end
  end
  return was
end

-- clear takes out what is over.
local function clear()
  for _, what in ipairs(kinds) do
    for _, member in ipairs(over(what)) do remove(member) end
  end
end

-- settle makes the key end with the last of all; without any there is no key.
local function settle()
  local ends = last()
  if ends > 0 then redis.call('PEXPIREAT', KEYS[1], text(ends)) end
end
