-- Says who holds a read-write lock. It writes nothing.
--
-- KEYS: the lock
-- ARGV: an owner
-- Returns {owners that hold the read side, grants of the write side, the
-- owner's grants of the read side, and of the write side, ms until the last of
-- all grants ends}.
local readers, seen, last = 0, {}, now
local all, own = {read = 0, write = 0}, {read = 0, write = 0}
local wrong = each(function(_, what, owner, ends)
  if what == 'wait' or ends <= now then return end
  last = math.max(last, ends)
  all[what] = all[what] + 1
  if owner == ARGV[1] then own[what] = own[what] + 1 end
  if what == 'read' and not seen[owner] then
    seen[owner] = true
    readers = readers + 1
  end
end)
if wrong then return wrong end
return {readers, all.write, own.read, own.write, last - now}
