#!lua
-- A replica leaves: what it held is free at once, and counts for the others' shares.
--
-- KEYS[1]  leases, a hash: partition to holder
-- KEYS[2]  replicas, a sorted set: holder by the time (ms of this instance) it is taken for dead
-- ARGV[1]  the replica
-- Returns  how many partitions it held
-- Status   none
local stored = redis.call('HGETALL', KEYS[1])
local freed = 0
for i = 1, #stored, 2 do
  if stored[i + 1] == ARGV[1] then
    redis.call('HDEL', KEYS[1], stored[i])
    freed = freed + 1
  end
end
redis.call('ZREM', KEYS[2], ARGV[1])
return freed
