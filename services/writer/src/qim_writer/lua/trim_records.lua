#!lua
-- Removes records at or below the floor, at most 1,000 a call. Control seqs and the floor itself stay, so that unread and
-- what was delivered are as exact as before.
--
-- KEYS   grpmeta, msgrec, msgts, msgsnd:k of the first seq to remove
-- ARGV   [1] segment k; where it is another one (a second run was faster) nothing is removed
-- Returns { the seq up to which everything is removed, the floor }
-- Status codes: none
local MOST = 1000
local SEGMENT = 65536
local call = redis.call
local grpmeta, msgrec, msgts, msgsnd = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local m = call('HMGET', grpmeta, 'floor', 'trimmed')
local floor, trimmed = tonumber(m[1] or 0), tonumber(m[2] or 0)
if trimmed >= floor or math.floor(trimmed / SEGMENT) ~= tonumber(ARGV[1]) then return { trimmed, floor } end
local segment_end = (math.floor(trimmed / SEGMENT) + 1) * SEGMENT
local upto = math.min(trimmed + MOST, floor, segment_end)
local seqs = {}
for seq = trimmed + 1, upto do seqs[#seqs + 1] = string.format('%.0f', seq) end
call('HDEL', msgrec, unpack(seqs))
for _, seq in ipairs(call('ZRANGE', msgts, 0, 63)) do
  if tonumber(seq) > upto then break end
  call('ZREM', msgts, seq)
end
if upto == segment_end then call('UNLINK', msgsnd) end
call('HSET', grpmeta, 'trimmed', upto)
return { upto, floor }
