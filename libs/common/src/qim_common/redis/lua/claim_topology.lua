#!lua
-- Give an instance its place in the topology, unless it has one (storage.md, "Where a key lives").
--
-- KEYS[1]  the fingerprint, a hash
-- ARGV     pairs of field and value of a new fingerprint
-- Returns  all fields and values, the old ones where there was a fingerprint, as HGETALL gives them
-- Status   none: the caller compares
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV))
end
return redis.call('HGETALL', KEYS[1])
