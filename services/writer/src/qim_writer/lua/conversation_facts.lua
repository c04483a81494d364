#!lua flags=no-writes
-- What every decision about one person in one conversation starts from, read in one atomic step, for many at once.
--
-- KEYS   for each conversation: grpmeta, grpcur, grpstays, msgcseq, msgrec (or without it), and msgctl, grpchg where ARGV[1]
--        is 1
-- ARGV   [1] 1: the head is the archived one (ack level archived), 0: the newest; then for each conversation: the person
--        (16 bytes)
-- Returns for each conversation: version, revision, generation, policy, count, floor, created, newest CONCERNED event,
--        the newest seq before it that is none, the newest such seq whose record was removed, its time, big
--        (0 or 1), newest stay, older stays, head, the record at the head (with msgrec, and to
--        a person who has a stay), raised generations, and with the archived head the archived version where a change
--        waits for the archive; false where there is none. With the archived head the two seqs are right where the first
--        is the head, and else only tell that it is not
-- Status codes: none
-- @include archived_version
local call, archived = redis.call, ARGV[1] == '1'
local people = #ARGV - 1
local width = #KEYS / people
local with_record = width - (archived and 2 or 0) == 5
local WALK = 64

-- The newest seq at or below `head` that is no CONCERNED event, where the newest such event is above it.
local function newest_broadcast(msgctl, head)
  local seq = head
  while true do
    local events = call('ZRANGE', msgctl, seq, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, WALK)
    for _, event in ipairs(events) do
      local at, _, audience = struct.unpack('>I6I6B', event)
      if at < seq or audience ~= 2 then return seq end
      seq = seq - 1
    end
    if #events < WALK then return seq end
  end
end

local out = {}
for i = 1, people do
  local k = (i - 1) * width + 1
  local facts = call('HMGET', KEYS[k], 'version', 'revision', 'generation', 'policy', 'count', 'floor', 'created',
    'cseq', 'prevb', 'gone', 'gonetime', 'big', 'gens')
  local head
  facts[17] = facts[13]
  facts[13] = call('HGET', KEYS[k + 1], ARGV[i + 1])
  facts[14] = call('HGET', KEYS[k + 2], ARGV[i + 1])
  if archived then
    head = call('HGET', KEYS[k], 'aseq') or '0'
    local seq = tonumber(head)
    if facts[1] and tonumber(facts[8]) > seq then
      facts[8], facts[9] = head, string.format('%.0f', newest_broadcast(KEYS[k + width - 2], seq))
    end
    facts[18] = archived_version(KEYS[k], KEYS[k + width - 1])
  else
    head = call('GET', KEYS[k + 3])
  end
  facts[15] = head
  facts[16] = with_record and facts[13] and head and call('HGET', KEYS[k + 4], head)
  out[i] = facts
end
return out
