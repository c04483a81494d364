#!lua
-- Removes records that are archived and old from Redis, at most 1,000 a call. What stays, so that a list's previews need no
-- archive: the newest record that reached everybody and all above it, and those at and right before a control seq, which
-- are the last that leavers see. Control seqs, sender columns and samples stay too: unread is as exact as before. The
-- last seq that goes becomes a sample, so that a retention by age, which sees no times of what has gone, finds the end.
--
-- KEYS   grpmeta, msgrec, msgctl, msgcseq, hot, msgts
-- ARGV   [1] scope (tenant u64 and conversation), [2] age in ms: what is younger stays
-- Returns { removed records, 1 where more may go now }
-- Status codes: none
-- @include clock
-- @include samples
local MOST = 1000
local call = redis.call
local grpmeta, msgrec, msgctl, msgcseq, hot, msgts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local scope, cutoff = ARGV[1], server_ms() - tonumber(ARGV[2])
local function time_of(seq)
  local record = call('HGET', msgrec, string.format('%.0f', seq))
  return record and struct.unpack('>I6', record, 9)
end

local m = call('HMGET', grpmeta, 'evicted', 'trimmed', 'aseq', 'cseq', 'prevb')
local evicted = math.max(tonumber(m[1] or 0), tonumber(m[2] or 0))
local newest = tonumber(call('GET', msgcseq) or 0)
if tonumber(m[4]) == newest then newest = tonumber(m[5]) end
local last = math.min(tonumber(m[3] or 0), newest - 1)
local upto = math.min(evicted + MOST, last)
if upto <= evicted then
  -- Its next message brings it back.
  call('ZREM', hot, scope)
  return { 0, 0 }
end

-- Times never fall within a conversation. A record that is gone is an old one.
local young = time_of(upto)
if young and young > cutoff then
  local low, high = evicted, upto
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    local time = time_of(middle)
    if time and time > cutoff then high = middle else low = middle end
  end
  upto = low
end

local edge = upto > evicted and time_of(upto)
if edge then
  -- The sample before is left out where the one before it is near enough: they are no denser than those of sends.
  local near = call('ZRANGE', msgts, string.format('%.0f', edge), '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 2, 'WITHSCORES')
  if near[3] and upto - tonumber(near[3]) < SAMPLE_SEQS and edge - tonumber(near[4]) < SAMPLE_MS then
    call('ZREM', msgts, near[1])
  end
  call('ZADD', msgts, string.format('%.0f', edge), string.format('%.0f', upto))
end

local kept = {}
for _, member in ipairs(call('ZRANGE', msgctl, evicted + 1, upto + 1, 'BYSCORE')) do
  local seq = struct.unpack('>I6', member)
  kept[seq], kept[seq - 1] = true, true
end
local seqs = {}
for seq = evicted + 1, upto do
  if not kept[seq] then seqs[#seqs + 1] = string.format('%.0f', seq) end
end
local removed = 0
if #seqs > 0 then removed = call('HDEL', msgrec, unpack(seqs)) end
if upto > evicted then call('HSET', grpmeta, 'evicted', string.format('%.0f', upto)) end
if upto >= last then
  call('ZREM', hot, scope)
  return { removed, 0 }
end
local next_time = time_of(upto + 1) or cutoff
call('ZADD', hot, next_time, scope)
return { removed, next_time <= cutoff and 1 or 0 }
