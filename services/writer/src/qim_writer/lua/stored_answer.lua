#!lua flags=no-writes
-- The stored answer of a request id, before any check (contracts.md, "Idempotency").
--
-- KEYS   meta, idem0, idem1, idem2
-- ARGV   [1] idempotency field
-- Returns the entry (digest of 8 bytes, answer), or false
-- Status codes: none
local g = tonumber(redis.call('HGET', KEYS[1], 'g') or 0)
return redis.call('HGET', KEYS[2 + g % 3], ARGV[1])
  or (g > 0 and redis.call('HGET', KEYS[2 + (g - 1) % 3], ARGV[1]))
