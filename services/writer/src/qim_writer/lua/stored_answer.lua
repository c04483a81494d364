#!lua flags=no-writes
-- The stored answer of a request id, before any check whose refusal would say that a forgotten request had no effect
-- (contracts.md, "Idempotency").
--
-- KEYS   meta, idem0, idem1, idem2
-- ARGV   [1] idempotency field, [2] id time in ms (0: none)
-- Returns { status, the entry (digest of 8 bytes, answer) or false }
-- Status codes: qim_writer/backends/redis/status.py
-- @include clock
-- @include idempotency
local OK, TOO_OLD = 0, 5
local rotation = redis.call('HMGET', KEYS[1], 'g', 'low')
local g, low = tonumber(rotation[1] or 0), tonumber(rotation[2] or 0)
local entry = redis.call('HGET', KEYS[2 + g % 3], ARGV[1])
  or (g > 0 and redis.call('HGET', KEYS[2 + (g - 1) % 3], ARGV[1]))
if not entry and idem_too_old(tonumber(ARGV[2]), low, server_ms()) then return { TOO_OLD, false } end
return { OK, entry }
