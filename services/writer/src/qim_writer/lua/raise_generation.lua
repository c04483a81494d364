#!lua
-- Raises the generation of a conversation in place, once for each recovery: what an older generation had above the
-- present head is lost (design.md invariant 11). Where there is an archive, its row of the group log goes with an entry
-- of the dispatch log that tells consumers nothing.
--
-- KEYS   grpmeta, msgcseq, and of a promoted replica: meta, dispatch
-- ARGV   [1] the recovery (16 bytes), [2] with meta and dispatch: scope (tenant u64 and conversation)
-- Returns 1 where it was raised, 0 where this recovery had raised it before
-- Status codes: none
-- @include group_rows
local GENERATION = 7
local call = redis.call
local m = call('HMGET', KEYS[1], 'generation', 'gens', 'raisedby', 'revision', 'version', 'policy', 'count', 'floor', 'big')
if not m[1] or m[3] == ARGV[1] then return 0 end
local generation, base, revision = tonumber(m[1]) + 1, tonumber(call('GET', KEYS[2]) or 0), tonumber(m[4]) + 1
call('HSET', KEYS[1], 'generation', generation, 'gens', (m[2] or '') .. struct.pack('>I4I6', generation, base),
  'raisedby', ARGV[1], 'revision', string.format('%.0f', revision))
if KEYS[3] and call('HEXISTS', KEYS[3], 'arch') == 1 then
  call('XADD', KEYS[4], '*', 'e', '', 'g', group_row({ kind = ROW_STATE, operation = GENERATION, scope = ARGV[2],
    generation = generation, revision = revision, version = tonumber(m[5]), head = base, count = tonumber(m[7]),
    flags = tonumber(m[9]) * ROW_BIG, floor = tonumber(m[8]), policy = m[6], people = '' },
    ARGV[1], '\0\0\0\0\0\0\0\0', ''))
end
return 1
