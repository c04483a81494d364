#!lua
-- Moves a group's floor up, for all: at or below it nobody reads. Readers see it at once; records are removed afterwards
-- (trim_records.lua).
--
-- KEYS   grpmeta, grplog, msgcseq, meta, dispatch, idem0, idem1, idem2, untrimmed
-- ARGV   [1] idempotency field ('': none, a run of the retention), [2] digest (8 bytes), [3] id time in ms (0: none),
--        [4] scope (tenant u64 and conversation), [5] new floor (0: the head), [6] who made it, [7] policy with which the
--        caller may do so, [8] retention of the dispatch log in ms
-- Returns { status, answer }: the answer as in include/group_state.lua; else an empty string
-- Status codes: qim_writer/backends/redis/status.py
-- @include clock
-- @include idempotency
-- @include dispatch
-- @include group_state
-- @include group_rows
local OK, DENIED, CHANGED, REUSED, TOO_OLD = 0, 1, 3, 4, 5
local FLOOR = 4
local call = redis.call
local grpmeta, grplog, msgcseq, dispatch = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local scope = ARGV[4]
local now = server_ms()

local current, older, low, stamps = idem_open(KEYS[4], KEYS, 6, now)
if ARGV[1] ~= '' then
  local entry = idem_find(current, older, ARGV[1])
  if entry then
    if string.sub(entry, 1, 8) ~= ARGV[2] then return { REUSED, '' } end
    return { OK, string.sub(entry, 9) }
  end
  if idem_too_old(tonumber(ARGV[3]), low, now) then return { TOO_OLD, '' } end
end

local m = call('HMGET', grpmeta, 'version', 'revision', 'generation', 'policy', 'count', 'floor', 'big', 'created')
if not m[1] then return { DENIED, '' } end
if m[4] ~= ARGV[7] then return { CHANGED, '' } end
local version, revision, generation, floor = tonumber(m[1]), tonumber(m[2]), tonumber(m[3]), tonumber(m[6])
local count, created = tonumber(m[5]), tonumber(m[8])
local head = tonumber(call('GET', msgcseq) or 0)
local wanted = tonumber(ARGV[5])
if wanted == 0 or wanted > head then wanted = head end
local moves = wanted > floor
if moves then
  floor, revision = wanted, revision + 1
end
local answer = group_answer(revision, version, count, head, floor, generation, created, m[4])
if moves then
  call('HSET', grpmeta, 'floor', floor, 'revision', revision)
  call('SADD', KEYS[9], scope)
  local payload = struct.pack('>I6', floor)
  local rows = ''
  if stamps[8] then
    rows = group_row({ kind = ROW_STATE, operation = FLOOR, scope = scope, generation = generation, revision = revision,
      version = version, head = head, count = count, flags = tonumber(m[7]) * ROW_BIG, floor = floor, policy = m[4],
      people = '', maker = ARGV[6] }, ARGV[1], ARGV[2], answer)
  end
  local time = state_entry(dispatch, KEYS[4], stamps, scope, tonumber(m[7]), generation, version, revision, head, FLOOR, payload,
    rows, now, tonumber(ARGV[8]))
  log_change(grplog, revision, FLOOR, time, version, head, ARGV[6], payload)
end
if ARGV[1] ~= '' then call('HSET', current, ARGV[1], ARGV[2] .. answer) end
return { OK, answer }
