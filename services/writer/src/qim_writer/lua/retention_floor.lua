#!lua flags=no-writes
-- The newest seq that is at least so old: where a retention by age puts the floor. Times never fall within a
-- conversation, so the sample before and the one after bound a binary search over the records between. Where records
-- between have left for the archive, the search begins behind them; if it finds nothing there, the sample before is the
-- answer: never too high, and too low by what lies between two samples at most.
--
-- KEYS   grpmeta, msgts, msgrec, msgcseq
-- ARGV   [1] time in ms
-- Returns { seq, or the floor where nothing above it is so old; the floor; policy, or false for an unknown group }
-- Status codes: none
local cutoff = tonumber(ARGV[1])
local call = redis.call
local function old(seq)
  local record = call('HGET', KEYS[3], string.format('%.0f', seq))
  return record and struct.unpack('>I6', record, 9) <= cutoff
end
local m = call('HMGET', KEYS[1], 'floor', 'policy', 'evicted')
local floor, evicted = tonumber(m[1] or 0), tonumber(m[3] or 0)
local head = tonumber(call('GET', KEYS[4]) or 0)
local before = call('ZRANGE', KEYS[2], cutoff, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1)[1]
local after = call('ZRANGE', KEYS[2], '(' .. ARGV[1], '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
local low = math.max(tonumber(before or 0), floor)
local high = math.min(tonumber(after or head + 1), head + 1)
-- Every record above `evicted` and the floor is here.
if evicted > low and evicted + 1 < high and old(evicted + 1) then low = evicted + 1 end
if low >= evicted then
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if old(middle) then low = middle else high = middle end
  end
end
return { low, floor, m[2] }
