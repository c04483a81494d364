#!lua flags=no-writes
-- What every decision about one person in one conversation starts from, read in one atomic step, for many at once.
--
-- KEYS   for each conversation: grpmeta, grpcur, grpstays, msgcseq; or these and msgrec
-- ARGV   for each conversation: the person (16 bytes)
-- Returns for each conversation: version, revision, generation, policy, count, floor, created, newest CONCERNED event,
--        the newest seq before it that is none, the newest such seq whose record was removed, its time, big
--        (0 or 1), newest stay, older stays, head, and the record at the head (with msgrec, and to
--        a person who has a stay); false where there is none
-- Status codes: none
local call, width = redis.call, #KEYS / #ARGV
local out = {}
for i = 1, #ARGV do
  local k = (i - 1) * width + 1
  local facts = call('HMGET', KEYS[k], 'version', 'revision', 'generation', 'policy', 'count', 'floor', 'created',
    'cseq', 'prevb', 'gone', 'gonetime', 'big')
  facts[13] = call('HGET', KEYS[k + 1], ARGV[i])
  facts[14] = call('HGET', KEYS[k + 2], ARGV[i])
  facts[15] = call('GET', KEYS[k + 3])
  facts[16] = width == 5 and facts[13] and facts[15] and call('HGET', KEYS[k + 4], facts[15])
  out[i] = facts
end
return out
