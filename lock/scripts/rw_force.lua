-- Ends all grants of both sides of a read-write lock. Writers that wait keep
-- their preference.
--
-- The mark makes a repetition, whose reply was lost, leave the next holder alone.
--
-- KEYS: the lock, the mark
-- ARGV: the channel of the readers, that of the writers, life of the mark in ms
-- Returns 1 if there was a grant, else 0.
if KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1 then return 1 end
local grants, held, last = {}, false, 0
local wrong = each(function(field, what, _, ends)
  if what ~= 'wait' then
    grants[#grants + 1] = field
    held = held or ends > now
  elseif ends > now then
    last = math.max(last, ends)
  end
end)
if wrong then return wrong end
if not held then return 0 end
change(grants, last)
if KEYS[2] then redis.call('SET', KEYS[2], 1, 'PX', ARGV[3]) end
if last == 0 then redis.pcall('PUBLISH', ARGV[1], 'all') end
redis.pcall('PUBLISH', ARGV[2], '1')
return 1
