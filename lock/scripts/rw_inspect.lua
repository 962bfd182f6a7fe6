-- Says who holds a read-write lock. It writes nothing.
--
-- KEYS: the lock
-- ARGV: an owner
-- Returns {owners that hold the read side, grants of the write side, the
-- owner's grants of the read side, and of the write side, ms until the last of
-- all grants ends}.
look()
local readers, left = redis.call('ZCOUNT', KEYS[1], '-inf', '(0'), {} -- left: the reads of an owner that aren't over
for _, member in ipairs(over('read')) do
  local owner = ownerOf(member)
  left[owner] = (left[owner] or -(score('reads:' .. owner) or 0)) - 1
  if left[owner] == 0 then readers = readers - 1 end
end
local reads, writes, own = left[ARGV[1]] or -(score('reads:' .. ARGV[1]) or 0), live('write'), 0
local ends, writer = longest('write')
if writer and ownerOf(writer) == ARGV[1] then own = writes end
return {readers, writes, reads, own, math.max(ends, final('read'), now) - now}
