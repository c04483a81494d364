#!lua
-- Set what a person wants of a conversation, once for each request id (contracts.md, "Idempotency"), and tell the
-- person's other devices.
--
-- KEYS     [1] flags of the person, a hash: conversation to flags u8 (1 hidden, 2 muted), generation u32, seq u64, and
--          how often they were set u32, big-endian; [2] usig, a stream; [3] meta of the person's bucket, [4] to [6]
--          idem0, idem1, idem2; [7] unflushed, a hash: which cursors and flags are still to be written behind
-- ARGV     [1] idempotency field, [2] digest (8 bytes), [3] id time in ms (0: none), [4] conversation,
--          [5] hidden: 1, 0 or empty (as it is), [6] muted: likewise, [7] the place of a new `hidden`: generation u32,
--          seq u64, [8] 1 if it is hidden now, else 0, [9] the signal without its last byte, which is the flags,
--          [10] the field in KEYS[7]; empty: nothing is written behind
-- Returns  {status, flags}: flags as they hold now or, of a known id, as they were answered first
-- Status   0 OK, 4 REUSED: the id had other content, 5 TOO_OLD: it can no longer be judged;
--          as qim_session.backends.redis_flags.FlagStatus
-- @include clock
-- @include idempotency
-- @include signal
local OK, REUSED, TOO_OLD = 0, 4, 5
local HIDDEN, MUTED = 1, 2
local now = server_ms()

local current, older, low = idem_open(KEYS[3], KEYS, 4, now)
local entry = idem_find(current, older, ARGV[1])
if entry then
  if string.sub(entry, 1, 8) ~= ARGV[2] then return { REUSED, 0 } end
  return { OK, string.byte(entry, 9) }
end
if idem_too_old(tonumber(ARGV[3]), low, now) then return { TOO_OLD, 0 } end

local stored = redis.call('HGET', KEYS[1], ARGV[4]) or struct.pack('>BI4I8I4', 0, 0, 0, 0)
local flags, place = string.byte(stored, 1), string.sub(stored, 2, 13)
local hidden, muted = flags % 2 == HIDDEN, flags >= MUTED
-- What a device is shown; a stored `hidden` that a message has ended stays ended.
local shown = hidden and ARGV[8] == '1'
if ARGV[5] == '1' then
  hidden, shown, place = true, true, ARGV[7]
elseif ARGV[5] == '0' then
  hidden, shown, place = false, false, struct.pack('>I4I8', 0, 0)
end
if ARGV[6] ~= '' then muted = ARGV[6] == '1' end

local function bits(is_hidden)
  return (is_hidden and HIDDEN or 0) + (muted and MUTED or 0)
end
local value = string.char(bits(hidden)) .. place
if value ~= string.sub(stored, 1, 13) then
  value = value .. struct.pack('>I4', struct.unpack('>I4', string.sub(stored, 14)) + 1)
  redis.call('HSET', KEYS[1], ARGV[4], value)
  if ARGV[10] ~= '' then redis.call('HSET', KEYS[7], ARGV[10], value) end
  signal(KEYS[2], ARGV[9] .. string.char(bits(shown)))
end
redis.call('HSET', current, ARGV[1], ARGV[2] .. string.char(bits(shown)))
return { OK, bits(shown) }
