#!lua flags=no-writes
-- What planning a membership change starts from: the first answer if the id is known, else version, policy, count and
-- the newest stays of the people named.
--
-- KEYS   grpmeta, grpcur, meta, idem0, idem1, idem2, msgcseq
-- ARGV   [1] idempotency field, [2] id time in ms (0: none), then the people (16 bytes each, at most 1,000)
-- Returns { status, entry or false, version, policy, count, big, head, { newest stay or false for each person } }
-- Status codes: qim_writer/backends/redis/status.py
-- @include clock
-- @include idempotency
local OK, TOO_OLD = 0, 5
local rotation = redis.call('HMGET', KEYS[3], 'g', 'low')
local g, low = tonumber(rotation[1] or 0), tonumber(rotation[2] or 0)
local entry = redis.call('HGET', KEYS[4 + g % 3], ARGV[1])
  or (g > 0 and redis.call('HGET', KEYS[4 + (g - 1) % 3], ARGV[1]))
-- Before the plan, whose refusals would say that the forgotten request had no effect.
if not entry and idem_too_old(tonumber(ARGV[2]), low, server_ms()) then return { TOO_OLD } end
local m = redis.call('HMGET', KEYS[1], 'version', 'policy', 'count', 'big')
local stays = redis.call('HMGET', KEYS[2], unpack(ARGV, 3))
return { OK, entry, m[1], m[2], m[3], m[4], redis.call('GET', KEYS[7]), stays }
