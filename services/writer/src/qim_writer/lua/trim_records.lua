#!lua
-- Removes records at or below the floor, at most 1,000 a call. Control seqs, the floor and the time of the newest seq
-- that reached everybody stay, so that unread, what was delivered and when something last happened are as exact as
-- before. Whatever ends a removal early, the group stays in `untrimmed` until everything is gone.
--
-- KEYS   grpmeta, msgrec, msgts, msgsnd:k of the first seq to remove, untrimmed, msgcseq
-- ARGV   [1] segment k; where it is another one (a second run was faster) nothing is removed, [2] scope (tenant u64 and
--        conversation)
-- Returns { the seq up to which everything is removed, the floor }
-- Status codes: none
local MOST = 1000
local SEGMENT = 65536
local call = redis.call
local grpmeta, msgrec, msgts, msgsnd, untrimmed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local function time_of(seq)
  local record = call('HGET', msgrec, string.format('%.0f', seq))
  return record and struct.unpack('>I6', record, 9)
end
local m = call('HMGET', grpmeta, 'floor', 'trimmed', 'cseq', 'prevb')
local floor, trimmed = tonumber(m[1] or 0), tonumber(m[2] or 0)
if trimmed < floor and math.floor(trimmed / SEGMENT) == tonumber(ARGV[1]) then
  local segment_end = (math.floor(trimmed / SEGMENT) + 1) * SEGMENT
  local upto = math.min(trimmed + MOST, floor, segment_end)
  -- Samples bound a search above the floor; as times never fall, those of removed seqs are the first by time.
  local time = time_of(upto)
  if time then call('ZREMRANGEBYSCORE', msgts, '-inf', string.format('%.0f', time)) end
  local newest = tonumber(call('GET', KEYS[6]))
  if tonumber(m[3]) == newest then newest = tonumber(m[4]) end
  if trimmed < newest and newest <= upto then
    call('HSET', grpmeta, 'gone', newest, 'gonetime', string.format('%.0f', time_of(newest) or 0))
  end
  local seqs = {}
  for seq = trimmed + 1, upto do seqs[#seqs + 1] = string.format('%.0f', seq) end
  call('HDEL', msgrec, unpack(seqs))
  if upto == segment_end then call('UNLINK', msgsnd) end
  call('HSET', grpmeta, 'trimmed', upto)
  trimmed = upto
end
if trimmed >= floor then call('SREM', untrimmed, ARGV[2]) end
return { trimmed, floor }
