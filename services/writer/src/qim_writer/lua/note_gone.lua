#!lua
-- Notes that the archive's first buckets of a conversation were deleted, all of them at or below the floor. When nothing
-- at or below the floor is left, here or there, the removal is over.
--
-- KEYS   grpmeta, untrimmed, msgcseq
-- ARGV   [1] scope (tenant u64 and conversation), [2] how many buckets are gone (0: only look), [3] seqs of one bucket
-- Returns { buckets that are gone, the floor, the seq up to which everything is removed from here, 1 where every change is
--        archived, generation, archived head, the newest seq that reached everybody }
-- Status codes: none
local call = redis.call
local m = call('HMGET', KEYS[1], 'floor', 'trimmed', 'agone', 'revision', 'arev', 'generation', 'aseq', 'cseq', 'prevb')
local floor, trimmed, gone = tonumber(m[1] or 0), tonumber(m[2] or 0), tonumber(m[3] or 0)
local now_gone = tonumber(ARGV[2])
if now_gone > gone then
  gone = now_gone
  call('HSET', KEYS[1], 'agone', string.format('%.0f', gone))
end
if trimmed >= floor and gone >= math.floor(floor / tonumber(ARGV[3])) then call('SREM', KEYS[2], ARGV[1]) end
local archived = 0
if m[5] and tonumber(m[5]) >= tonumber(m[4]) then archived = 1 end
local newest = tonumber(call('GET', KEYS[3]) or 0)
if tonumber(m[8]) == newest then newest = tonumber(m[9]) end
return { gone, floor, trimmed, archived, tonumber(m[6] or 0), tonumber(m[7] or 0), newest }
