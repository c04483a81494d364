#!lua
-- Move the checkpoint of one partition, as long as it is where its holder left it (design.md invariant 10: after the
-- effects, for a consumer whose effects are outside of this store).
--
-- KEYS[1]  checkpoints, a hash: partition to checkpoint
-- ARGV[1]  the partition, ARGV[2] what must be stored (empty: nothing may be), ARGV[3] the new checkpoint
-- Returns  the status
-- Status   0 moved, 1 another one is stored
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then
  return 1
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 0
