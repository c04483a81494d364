#!lua
-- Move conversations up in their people's lists, register what is new, and move the checkpoint, all in one step
-- (storage.md, "Session"; design.md invariant 10). Both lanes use it: whichever comes first registers.
--
-- KEYS[1]    checkpoints, a hash: partition to checkpoint
-- KEYS[2]    ucs_pending, a list
-- KEYS[2+i]  convs of the person of entry i, a sorted set
-- ARGV[1]    partition, the hash field; empty: a lane without checkpoints, ARGV[2] and ARGV[3] are ignored
-- ARGV[2]    the checkpoint that must be stored; empty: none may be stored
-- ARGV[3]    the checkpoint to store; empty: leave it, more calls of this batch follow
-- ARGV[2+2i] the time of entry i in ms, ARGV[3+2i] its packed form of 48 bytes, conversation at 25 to 40
-- Returns    {status, x}
-- Status     0 APPLIED: x is the number of new conversations; 1 MOVED: nothing was done, x is the stored checkpoint
--            or empty; as qim_session.backends.redis_projection.ProjectStatus
local partition = ARGV[1]
if partition ~= '' then
  local stored = redis.call('HGET', KEYS[1], partition) or ''
  if stored ~= ARGV[2] then
    return {1, stored}
  end
end
local pending = {}
for i = 1, #KEYS - 2 do
  local packed = ARGV[3 + 2 * i]
  if redis.call('ZADD', KEYS[2 + i], 'GT', ARGV[2 + 2 * i], string.sub(packed, 25, 40)) == 1 then
    pending[#pending + 1] = packed
  end
end
if #pending > 0 then
  redis.call('RPUSH', KEYS[2], unpack(pending))
end
if partition ~= '' and ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], partition, ARGV[3])
end
return {0, #pending}
