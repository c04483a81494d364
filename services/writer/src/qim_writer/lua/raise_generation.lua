#!lua
-- Raises the generation of a conversation whose instance has no archive, once for each recovery: what an older
-- generation had above the present head is lost (design.md invariant 11).
--
-- KEYS   grpmeta, msgcseq
-- ARGV   [1] the recovery (16 bytes)
-- Returns 1 where it was raised, 0 where this recovery had raised it before
-- Status codes: none
local call = redis.call
local m = call('HMGET', KEYS[1], 'generation', 'gens', 'raisedby', 'revision')
if not m[1] or m[3] == ARGV[1] then return 0 end
local generation, base = tonumber(m[1]) + 1, tonumber(call('GET', KEYS[2]) or 0)
call('HSET', KEYS[1], 'generation', generation, 'gens', (m[2] or '') .. struct.pack('>I4I6', generation, base),
  'raisedby', ARGV[1], 'revision', string.format('%.0f', tonumber(m[4]) + 1))
return 1
