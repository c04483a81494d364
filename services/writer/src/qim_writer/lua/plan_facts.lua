#!lua flags=no-writes,allow-cross-slot-keys
-- What planning a membership change starts from: the first answer if the id is known, else version, policy, count and
-- the newest stays of the people named.
--
-- KEYS   grpmeta, grpcur, meta, idem0, idem1, idem2, msgcseq
-- ARGV   [1] idempotency field, then the people (16 bytes each, at most 1,000)
-- Returns { entry or false, version, policy, count, head, { newest stay or false for each person } }
-- Status codes: none
local g = tonumber(redis.call('HGET', KEYS[3], 'g') or 0)
local entry = redis.call('HGET', KEYS[4 + g % 3], ARGV[1])
  or (g > 0 and redis.call('HGET', KEYS[4 + (g - 1) % 3], ARGV[1]))
local m = redis.call('HMGET', KEYS[1], 'version', 'policy', 'count')
local stays = redis.call('HMGET', KEYS[2], unpack(ARGV, 2))
return { entry, m[1], m[2], m[3], redis.call('GET', KEYS[7]), stays }
