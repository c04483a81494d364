#!lua
-- Replaces a group's policy (settings, owner, frozen) if it is still the one that the change was planned on: no seq, no
-- version, a state entry (design.md, "Words").
--
-- KEYS   grpmeta, grpcur, grplog, msgcseq, retained, meta, dispatch, idem0, idem1, idem2
-- ARGV   [1] idempotency field, [2] digest (8 bytes), [3] id time in ms (0: none), [4] scope (tenant u64 and
--        conversation), [5] planned policy, [6] new policy, [7] what changed u8, [8] who made it, [9] a person who must be
--        a member ('': nobody), [10] 1 = the group has a retention, [11] retention of the dispatch log in ms
-- Returns { status, answer }: the answer as in include/group_state.lua; else an empty string
-- Status codes: qim_writer/backends/redis/status.py
-- @include clock
-- @include idempotency
-- @include dispatch
-- @include group_state
-- @include group_rows
local OK, DENIED, CHANGED, REUSED, TOO_OLD, NOT_MEMBER = 0, 1, 3, 4, 5, 8
local call = redis.call
local grpmeta, grpcur, grplog, retained, dispatch = KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[7]
local scope, policy = ARGV[4], ARGV[6]
local now = server_ms()

local current, older, low, stamps = idem_open(KEYS[6], KEYS, 8, now)
local entry = idem_find(current, older, ARGV[1])
if entry then
  if string.sub(entry, 1, 8) ~= ARGV[2] then return { REUSED, '' } end
  return { OK, string.sub(entry, 9) }
end
if idem_too_old(tonumber(ARGV[3]), low, now) then return { TOO_OLD, '' } end

local m = call('HMGET', grpmeta, 'version', 'revision', 'generation', 'policy', 'count', 'floor', 'big', 'created')
if not m[1] then return { DENIED, '' } end
if m[4] ~= ARGV[5] then return { CHANGED, '' } end
if ARGV[9] ~= '' then
  local stay = call('HGET', grpcur, ARGV[9])
  if not stay or string.byte(stay, 2) % 2 == 0 then return { NOT_MEMBER, '' } end
end
local version, revision, generation = tonumber(m[1]), tonumber(m[2]), tonumber(m[3])
local head = tonumber(call('GET', KEYS[4]) or 0)
local count, floor = tonumber(m[5]), tonumber(m[6])
local changes = policy ~= ARGV[5]
if changes then revision = revision + 1 end
local answer = group_answer(revision, version, count, head, floor, generation, tonumber(m[8]), policy)
if changes then
  local change = tonumber(ARGV[7])
  call('HSET', grpmeta, 'policy', policy, 'revision', revision)
  local rows = ''
  if stamps[8] then
    rows = group_row({ kind = ROW_STATE, operation = change, scope = scope, generation = generation, revision = revision,
      version = version, head = head, count = count, flags = tonumber(m[7]) * ROW_BIG, floor = floor, policy = policy,
      people = '', maker = ARGV[8] }, ARGV[1], ARGV[2], answer)
  end
  local time = state_entry(dispatch, KEYS[6], stamps, scope, tonumber(m[7]), generation, version, revision, head, change, policy,
    rows, now, tonumber(ARGV[11]))
  log_change(grplog, revision, change, time, version, head, ARGV[8], policy)
  if ARGV[10] == '1' then call('SADD', retained, scope) else call('SREM', retained, scope) end
end
call('HSET', current, ARGV[1], ARGV[2] .. answer)
return { OK, answer }
