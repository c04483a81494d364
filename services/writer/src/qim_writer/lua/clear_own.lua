#!lua
-- Moves a person's own clear point up, for all of their devices.
--
-- KEYS   grpmeta, grpcur, msgcseq, meta, dispatch, idem0, idem1, idem2
-- ARGV   [1] idempotency field, [2] digest (8 bytes), [3] id time in ms (0: none), [4] scope (tenant u64 and
--        conversation), [5] the person, [6] new clear point (0: everything), [7] retention of the dispatch log in ms
-- Returns { status, answer }: answer = the clear point u48; else an empty string
-- Status codes: qim_writer/backends/redis/status.py
-- @include clock
-- @include idempotency
-- @include dispatch
-- @include group_state
-- @include group_rows
local OK, DENIED, REUSED, TOO_OLD = 0, 1, 4, 5
local OWN_CLEAR = 5
local CUR = '>BBI3I6I6I6I6I6I6'
local pack = struct.pack
local call = redis.call
local grpmeta, grpcur, msgcseq, dispatch = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local scope, user = ARGV[4], ARGV[5]
local now = server_ms()

local current, older, low, stamps = idem_open(KEYS[4], KEYS, 6, now)
local entry = idem_find(current, older, ARGV[1])
if entry then
  if string.sub(entry, 1, 8) ~= ARGV[2] then return { REUSED, '' } end
  return { OK, string.sub(entry, 9) }
end
if idem_too_old(tonumber(ARGV[3]), low, now) then return { TOO_OLD, '' } end

local stored = call('HGET', grpcur, user)
if not stored then return { DENIED, '' } end
local format, flags, ordinal, joined, from, left, began, ended, clear = struct.unpack(CUR, stored)
local upper = left - 1
local head = tonumber(call('GET', msgcseq) or 0)
if left == 0 then upper = head end
local wanted = tonumber(ARGV[6])
if wanted == 0 or wanted > upper then wanted = upper end
local answer = pack('>I6', math.max(wanted, clear))
if wanted > clear then
  clear = wanted
  call('HSET', grpcur, user, pack(CUR, format, flags, ordinal, joined, from, left, began, ended, clear))
  local m = call('HMGET', grpmeta, 'version', 'revision', 'generation', 'big', 'policy', 'count', 'floor')
  local revision = tonumber(m[2]) + 1
  call('HSET', grpmeta, 'revision', revision)
  local rows = ''
  if stamps[8] then
    rows = group_row({ kind = ROW_STATE, operation = OWN_CLEAR, scope = scope, generation = tonumber(m[3]), revision = revision,
      version = tonumber(m[1]), head = head, count = tonumber(m[6]), flags = tonumber(m[4]) * ROW_BIG, floor = tonumber(m[7]),
      clear = clear, policy = m[5], people = user }, ARGV[1], ARGV[2], answer)
  end
  state_entry(dispatch, KEYS[4], stamps, scope, tonumber(m[4]), tonumber(m[3]), tonumber(m[1]), revision, head, OWN_CLEAR,
    user .. answer, rows, now, tonumber(ARGV[7]))
end
call('HSET', current, ARGV[1], ARGV[2] .. answer)
return { OK, answer }
