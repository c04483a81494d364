#!lua flags=no-writes
-- What every decision about one person in one conversation starts from, read in one atomic step, for many at once.
--
-- KEYS   for each conversation: grpmeta, grpcur, grpstays, msgcseq
-- ARGV   for each conversation: the person (16 bytes)
-- Returns for each conversation: version, revision, generation, policy, count, floor, created, newest CONCERNED event,
--        the newest seq before it that is none, the newest such seq whose record was removed, its time, newest stay,
--        older stays, head; false where there is none
-- Status codes: none
local out = {}
for i = 1, #ARGV do
  local k = i * 4 - 3
  local facts = redis.call('HMGET', KEYS[k], 'version', 'revision', 'generation', 'policy', 'count', 'floor', 'created',
    'cseq', 'prevb', 'gone', 'gonetime')
  facts[12] = redis.call('HGET', KEYS[k + 1], ARGV[i])
  facts[13] = redis.call('HGET', KEYS[k + 2], ARGV[i])
  facts[14] = redis.call('GET', KEYS[k + 3])
  out[i] = facts
end
return out
