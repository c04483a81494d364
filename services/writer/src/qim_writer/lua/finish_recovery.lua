#!lua
-- Ends a recovery: the instance gets its fingerprint, and the fence is lifted; only by the run that has the lock.
--
-- KEYS   lock, fingerprint of the commit role, fingerprint of the session role, fence
-- ARGV   [1] token of the run, [2] run id and [3] replication id of the server, [4] number of the following that are the
--        commit fingerprint, fields and values; the rest are the session fingerprint's: none, it stays as it is
-- Returns 1, or 0 where another run has the lock or nobody: nothing is changed then
-- Status codes: none
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local last = 4 + tonumber(ARGV[4])
for at = 5, last, 2 do redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1]) end
for at = last + 1, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[at], ARGV[at + 1]) end
redis.call('HSET', KEYS[4], 'run_id', ARGV[2], 'replid', ARGV[3])
redis.call('HDEL', KEYS[4], 'fenced', 'recovery', 'rebuilding')
return 1
