#!lua
-- Removes records at or below the floor, at most 1,000 a call. Control seqs, the floor and the time of the newest seq
-- that reached everybody stay, so that unread, what was delivered and when something last happened are as exact as
-- before. With an archive no record goes that is not in it: a recovery makes the answers of sends from records, and the
-- archiver reads large ones from here. Whatever ends a removal early, the group stays in `untrimmed` until everything is
-- gone, from the archive too (note_gone.lua).
--
-- KEYS   grpmeta, msgrec, msgts, msgsnd:k of the first seq to remove, untrimmed, msgcseq
-- ARGV   [1] segment k; where it is another one (a second run was faster) nothing is removed, [2] scope (tenant u64 and
--        conversation), [3] seqs of one bucket of the archive (0: there is no archive)
-- Returns { the seq up to which everything is removed from here, the seq up to which it may be now }
-- Status codes: none
local MOST = 1000
local SEGMENT = 65536
local SAMPLES_AT_ONCE = 16
local call = redis.call
local grpmeta, msgrec, msgts, msgsnd, untrimmed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local archive_bucket = tonumber(ARGV[3])
local function time_of(seq)
  local record = call('HGET', msgrec, string.format('%.0f', seq))
  return record and struct.unpack('>I6', record, 9)
end
-- Samples bound a search above the floor. They ascend by seq as by time; the record at `upto` may be in the archive only.
local function drop_samples(upto)
  repeat
    local old = {}
    for _, seq in ipairs(call('ZRANGE', msgts, 0, SAMPLES_AT_ONCE - 1)) do
      if tonumber(seq) <= upto then old[#old + 1] = seq end
    end
    if #old > 0 then call('ZREM', msgts, unpack(old)) end
  until #old < SAMPLES_AT_ONCE
end
local m = call('HMGET', grpmeta, 'floor', 'trimmed', 'cseq', 'prevb', 'agone', 'aseq')
local floor, trimmed = tonumber(m[1] or 0), tonumber(m[2] or 0)
local limit = floor
if archive_bucket > 0 then limit = math.min(floor, tonumber(m[6] or 0)) end
if trimmed < limit and math.floor(trimmed / SEGMENT) == tonumber(ARGV[1]) then
  local segment_end = (math.floor(trimmed / SEGMENT) + 1) * SEGMENT
  local upto = math.min(trimmed + MOST, limit, segment_end)
  drop_samples(upto)
  local newest = tonumber(call('GET', KEYS[6]))
  if tonumber(m[3]) == newest then newest = tonumber(m[4]) end
  -- This one record is here, whatever has left for the archive (evict_records.lua).
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
local archive_left = archive_bucket > 0 and tonumber(m[5] or 0) < math.floor(floor / archive_bucket)
if trimmed >= floor and not archive_left then call('SREM', untrimmed, ARGV[2]) end
return { trimmed, limit }
