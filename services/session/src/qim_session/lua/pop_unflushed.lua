#!lua
-- Take cursors and flags off the list of what is to be written behind: only those that are still what was written, so
-- that one that has moved since is written again (storage.md, "Session").
--
-- KEYS[1]  unflushed, a hash: which cursor or flags to its value
-- ARGV     pairs of field and the value that was written, at most 1,000 pairs
-- Returns  how many were taken off
-- Status   none: fewer means that they have moved, or that another process was faster
local fields, written = {}, {}
for i = 1, #ARGV, 2 do
  fields[#fields + 1] = ARGV[i]
  written[#written + 1] = ARGV[i + 1]
end
local stored = redis.call('HMGET', KEYS[1], unpack(fields))
local same = {}
for i = 1, #fields do
  if stored[i] == written[i] then
    same[#same + 1] = fields[i]
  end
end
if #same > 0 then
  redis.call('HDEL', KEYS[1], unpack(same))
end
return #same
