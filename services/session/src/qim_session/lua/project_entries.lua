#!lua
-- Move conversations up in their people's lists, register what is new, and move the checkpoint, all in one step
-- (storage.md, "Session"; design.md invariant 10). Both lanes use it: whichever comes first registers.
--
-- KEYS[1]    checkpoints, a hash: partition to checkpoint
-- KEYS[2]    progress, a hash: partition to ms
-- KEYS[3]    ucs_pending, a list
-- KEYS[3+i]  convs of the person of entry i, a sorted set; behind them bigconvs, a set, of the first ARGV[5] entries
-- ARGV[1]    partition, the hash field; empty: a lane without checkpoints, ARGV[2] to ARGV[4] are ignored
-- ARGV[2]    the checkpoint that must be stored; empty: none may be stored
-- ARGV[3]    the checkpoint to store; empty: leave it and the progress, more calls of this batch follow
-- ARGV[4]    the progress to store with it
-- ARGV[5]    the number of entries of big groups; they come first
-- ARGV[4+2i] the time of entry i in ms, ARGV[5+2i] its packed form of 48 bytes, conversation at 25 to 40
-- Returns    {status, x}
-- Status     0 APPLIED: x is the number of new conversations; 1 MOVED: nothing was done, x is the stored checkpoint
--            or empty; as qim_session.backends.redis_projection.ProjectStatus
local call, sub = redis.call, string.sub
local partition = ARGV[1]
if partition ~= '' then
  local stored = call('HGET', KEYS[1], partition) or ''
  if stored ~= ARGV[2] then
    return {1, stored}
  end
end
local big = tonumber(ARGV[5])
local entries = #KEYS - 3 - big
local pending = {}
for i = 1, entries do
  local packed = ARGV[5 + 2 * i]
  if call('ZADD', KEYS[3 + i], 'GT', ARGV[4 + 2 * i], sub(packed, 25, 40)) == 1 then
    pending[#pending + 1] = packed
  end
end
for i = 1, big do
  call('SADD', KEYS[3 + entries + i], sub(ARGV[5 + 2 * i], 25, 40))
end
if #pending > 0 then
  call('RPUSH', KEYS[3], unpack(pending))
end
if partition ~= '' and ARGV[3] ~= '' then
  call('HSET', KEYS[1], partition, ARGV[3])
  call('HSET', KEYS[2], partition, ARGV[4])
end
return {0, #pending}
