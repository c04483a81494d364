#!lua
-- Creates a group that does not exist (contract: create_group). Never adds a member to one that does. The block of a
-- group that is created big says BIG_BEGAN.
--
-- KEYS   grpmeta, grpcur, grpmem, meta, dispatch, memlog, idem0, idem1, idem2, retained, grplog
-- ARGV   [1] idempotency field, [2] digest (8 bytes), [3] id time in ms (0: none), [4] scope (tenant u64 and
--        conversation), [5] people: each user and mailbox shard u16, the owner first, [6] policy, [7] big (0 or 1),
--        [8] retention of the dispatch log in ms, [9] 1 = the group has a retention by age, [10] who made it
-- Returns { status, answer }: answer = version u48, seq u48 (0), count u32, changed u16, time u48; else an empty string
-- Status codes: qim_writer/backends/redis/status.py
-- @include clock
-- @include idempotency
-- @include dispatch
-- @include group_rows
-- @include group_state
local OK, REUSED, TOO_OLD, EXISTS = 0, 4, 5, 7
local CREATED = 1
local ANSWER = '>I6I6I4I2I6'
local pack = struct.pack
local call = redis.call
local grpmeta, grpcur, grpmem, memlog = KEYS[1], KEYS[2], KEYS[3], KEYS[6]
local scope, people = ARGV[4], ARGV[5]
local now = server_ms()

local current, older, low, stamps = idem_open(KEYS[4], KEYS, 7, now)
local entry = idem_find(current, older, ARGV[1])
if entry then
  if string.sub(entry, 1, 8) ~= ARGV[2] then return { REUSED, '' } end
  return { OK, string.sub(entry, 9) }
end
if idem_too_old(tonumber(ARGV[3]), low, now) then return { TOO_OLD, '' } end
if call('EXISTS', grpmeta) == 1 then return { EXISTS, '' } end

local count = #people / 18
local users, stays, members = {}, {}, {}
for i = 0, count - 1 do
  local user = string.sub(people, i * 18 + 1, i * 18 + 16)
  users[i + 1] = user
  stays[2 * i + 1] = user
  stays[2 * i + 2] = pack('>BBI3I6I6I6I6I6I6', 1, 1, i + 1, 0, 0, 0, 1, 0, 0)
  members[2 * i + 1] = 0
  members[2 * i + 2] = string.sub(people, i * 18 + 17, i * 18 + 18) .. user
end
call('HSET', grpcur, unpack(stays))
call('ZADD', grpmem, unpack(members))
local people_bytes = table.concat(users)
call('XADD', memlog, '*', 'e', scope .. pack('>I2', count) .. people_bytes)
local created = dispatch_block(BLOCK_STATE, scope, big_flags(0, tonumber(ARGV[7])), 0, 1, 1, 0, 0, 1) .. pack('>BI4', CREATED, 0)
local rows = ''
if stamps[8] then
  rows = group_row({ kind = ROW_STATE, operation = CREATED, scope = scope, generation = 0, revision = 1, version = 1, head = 0,
    count = count, flags = tonumber(ARGV[7]) * ROW_BIG, floor = 0, policy = ARGV[6], people = people_bytes,
    maker = ARGV[10] }, ARGV[1], ARGV[2], pack(ANSWER, 1, 0, count, count, 0))
end
local time = dispatch_append(KEYS[5], KEYS[4], stamps, created, rows, 1, now, tonumber(ARGV[8]))
-- First the fields that every send reads: a small hash is searched from its beginning.
call('HSET', grpmeta, 'version', 1, 'revision', 1, 'generation', 0, 'policy', ARGV[6], 'cseq', 0, 'prevb', 0,
  'big', ARGV[7], 'ts', 0, 'count', count, 'floor', 0, 'nord', count, 'chglow', 1, 'created', time)
log_change(KEYS[11], 1, CREATED, time, 1, 0, ARGV[10], ARGV[6])
if ARGV[9] == '1' then call('SADD', KEYS[10], scope) end
local answer = pack(ANSWER, 1, 0, count, count, time)
call('HSET', current, ARGV[1], ARGV[2] .. answer)
return { OK, answer }
