#!lua
-- Bring back what a person had set for conversations, as it was written behind; what was set more often since stays
-- (storage.md, "Session": flags have a counter of their own).
--
-- KEYS[1]  flags of the person, a hash, as in set_flags.lua
-- ARGV     pairs of conversation and packed flags, at most 1,000 pairs
-- Returns  how many were brought back
-- Status   none
local function count(packed)
  return (struct.unpack('>I4', string.sub(packed, 14)))
end
local restored = 0
for i = 1, #ARGV, 2 do
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  if not stored or count(stored) < count(ARGV[i + 1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    restored = restored + 1
  end
end
return restored
