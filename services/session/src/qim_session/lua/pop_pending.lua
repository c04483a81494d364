#!lua
-- Take registered conversations off the list: only heads that equal what was written, so that several registrars on one
-- list drop nothing that nobody wrote (storage.md, "Session").
--
-- KEYS[1]  ucs_pending, a list
-- ARGV     what was written, in the order of the list, at most 250 entries
-- Returns  how many heads were popped, from 0 up to the number of ARGV
-- Status   none: fewer means that another registrar was faster
local heads = redis.call('LRANGE', KEYS[1], 0, #ARGV - 1)
local same = 0
while same < #ARGV and heads[same + 1] == ARGV[same + 1] do
  same = same + 1
end
if same > 0 then
  redis.call('LPOP', KEYS[1], same)
end
return same
