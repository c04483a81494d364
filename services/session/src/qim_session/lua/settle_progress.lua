#!lua
-- Store how far partitions without news are, each only as long as its checkpoint is the one that this was found with,
-- so that neither a replica that lost the partition nor a wiped store gets a promise that does not hold (storage.md,
-- "Session": a partition's progress).
--
-- KEYS[1]  checkpoints, a hash: partition to checkpoint
-- KEYS[2]  progress, a hash: partition to ms
-- ARGV     first the partitions, at most 1,000, then as many checkpoints that must be stored (empty: none may be), then
--          as many times in ms
-- Returns  the partitions whose checkpoint was another one, for which nothing was done
-- Status   none
local count = #ARGV / 3
local stored = redis.call('HMGET', KEYS[1], unpack(ARGV, 1, count))
local settled, moved = {}, {}
for i = 1, count do
  if (stored[i] or '') == ARGV[count + i] then
    settled[#settled + 1] = ARGV[i]
    settled[#settled + 1] = ARGV[2 * count + i]
  else
    moved[#moved + 1] = ARGV[i]
  end
end
if #settled > 0 then
  -- One command, because each is written to the append-only file.
  redis.call('HSET', KEYS[2], unpack(settled))
end
return moved
