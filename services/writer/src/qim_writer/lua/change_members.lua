#!lua
-- A membership change: compare V, allocate J, open or close stays, V+1, record the control message (design.md
-- invariants 2 and 5). The writer planned it on version and policy, and both are compared here, so that nothing it
-- decided can be stale. The block of the change that makes a group big says BIG_BEGAN. Costs O(people changed), never
-- O(group size).
--
-- KEYS   grpmeta, grpcur, grpstays, grpmem, grpchg, msgcseq, msgrec, msgctl, msgsnd:k, msgsnd:k+1, msgts, meta,
--        dispatch, memlog, idem0, idem1, idem2
-- ARGV   [1] idempotency field, [2] digest (8 bytes), [3] id time in ms (0: none), [4] scope (tenant u64 and
--        conversation), [5] planned version, [6] planned policy, [7] new policy (the same where nothing changes),
--        [8] op u8: 1 join, 2 leave, 3 remove, [9] people really changed, ascending, 16 bytes each,
--        [10] event's actor (16 bytes), [11] record tail, [12] audience: 1 broadcast, 2 concerned, [13] count after,
--        [14] big after (0 or 1), [15] segment k, [16] join: how far back, -1 = everything; leave: 1 = revoked,
--        [17] join: 1 = keeps earlier stays, [18] retention of the dispatch log in ms, [19] the people's entries of
--        grpmem, ascending: mailbox shard u16 and user (neighbours are found faster than people in another order)
-- Returns { status, answer }: answer = version u48, seq u48, count u32, changed u16, time u48; with NEED_SEGMENT the
--        head as a decimal; else an empty string
-- Status codes: qim_writer/backends/redis/status.py
-- @include clock
-- @include idempotency
-- @include dispatch
-- @include group_rows
-- @include samples
local OK, CHANGED, REUSED, TOO_OLD, NEED_SEGMENT = 0, 3, 4, 5, 6
local JOIN, REMOVE = 1, 3
local SEGMENT = 65536
local ANSWER = '>I6I6I4I2I6'
local pack, unpack_at = struct.pack, struct.unpack
local sub, byte, char = string.sub, string.byte, string.char
local call = redis.call
local grpmeta, grpcur, grpstays, grpmem, grpchg = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local msgcseq, msgrec, msgctl, msgsnd, msgsnd_next, msgts = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local meta, dispatch, memlog = KEYS[12], KEYS[13], KEYS[14]
local scope, op, people, entries = ARGV[4], tonumber(ARGV[8]), ARGV[9], ARGV[19]
local now = server_ms()

local current, older, low, stamps = idem_open(meta, KEYS, 15, now)
local entry = idem_find(current, older, ARGV[1])
if entry then
  if string.sub(entry, 1, 8) ~= ARGV[2] then return { REUSED, '' } end
  return { OK, string.sub(entry, 9) }
end
if idem_too_old(tonumber(ARGV[3]), low, now) then return { TOO_OLD, '' } end

local m = call('HMGET', grpmeta, 'version', 'revision', 'generation', 'policy', 'count', 'nord', 'cseq', 'prevb', 'ts',
  'chgat', 'big', 'floor')
local version, revision, generation = tonumber(m[1]), tonumber(m[2]), tonumber(m[3])
local ordinals = tonumber(m[6])
if version ~= tonumber(ARGV[5]) or m[4] ~= ARGV[6] then return { CHANGED, '' } end

local changed = #people / 16
if changed == 0 then
  local answer = pack(ANSWER, version, 0, tonumber(m[5]), 0, now)
  call('HSET', current, ARGV[1], ARGV[2] .. answer)
  return { OK, answer }
end

local seq = call('INCR', msgcseq)
local head = seq - 1
local segment = tonumber(ARGV[15])
local ahead = math.floor(head / SEGMENT) - segment
if ahead < 0 or ahead > 1 then
  call('DECR', msgcseq)
  return { NEED_SEGMENT, string.format('%.0f', head) }
end
local made = version + 1

local users = {}
for i = 1, changed do users[i] = sub(people, i * 16 - 15, i * 16) end
local present = call('HMGET', grpcur, unpack(users))
local stays, members, past, returning = {}, {}, {}, {}
local history_from, row_flags = 0, 0
-- The layout of a newest stay: version u8, flags u8, ordinal u24, joined, history from, left, began, ended, own clear;
-- an older stay is its flags and the five fields after the ordinal.
if op == JOIN then
  local back = tonumber(ARGV[16])
  if back >= 0 then history_from = math.max(head - back, 0) end
  local flags = 1 + tonumber(ARGV[17]) * 2
  row_flags = tonumber(ARGV[17]) * ROW_KEEPS_EARLIER
  local stay = pack('>I6I6I6I6I6', head, history_from, 0, made, 0)
  for i = 1, changed do
    local before = present[i]
    stays[2 * i - 1] = users[i]
    if before then
      returning[#returning + 1] = users[i]
      past[#past + 1] = sub(before, 2, 2) .. sub(before, 6, 35)
      stays[2 * i] = char(1, flags) .. sub(before, 3, 5) .. stay .. sub(before, 36)
    else
      ordinals = ordinals + 1
      stays[2 * i] = pack('>BBI3', 1, flags, ordinals) .. stay .. '\0\0\0\0\0\0'
    end
    members[2 * i - 1] = 0
    members[2 * i] = sub(entries, i * 18 - 17, i * 18)
  end
else
  local ended = -1
  if tonumber(ARGV[16]) == 1 then ended, row_flags = ended + 4, ROW_REVOKED end
  if op == REMOVE then ended = ended + 8 end
  local left, version_bytes = pack('>I6', seq), pack('>I6', made)
  for i = 1, changed do
    local before = present[i]
    stays[2 * i - 1] = users[i]
    stays[2 * i] = char(1, byte(before, 2) + ended) .. sub(before, 3, 17) .. left .. sub(before, 24, 29)
      .. version_bytes .. sub(before, 36)
    members[i] = sub(entries, i * 18 - 17, i * 18)
  end
end
if #returning > 0 then
  local before = call('HMGET', grpstays, unpack(returning))
  local longer = {}
  for i = 1, #returning do
    longer[2 * i - 1] = returning[i]
    longer[2 * i] = (before[i] or '') .. past[i]
  end
  call('HSET', grpstays, unpack(longer))
end
call('HSET', grpcur, unpack(stays))
if op == JOIN then
  call('ZADD', grpmem, unpack(members))
  call('XADD', memlog, '*', 'e', scope .. pack('>I2', changed) .. table.concat(users))
else
  call('ZREM', grpmem, unpack(members))
end

local prev = head
if tonumber(m[7]) == head then prev = tonumber(m[8]) end
local audience, tail = tonumber(ARGV[12]), ARGV[11]
local flags = big_flags(tonumber(m[11]), tonumber(ARGV[14]))
local block = dispatch_block(BLOCK_MESSAGES, scope, flags, generation, made, revision + 1, prev, seq, 1)
  .. dispatch_event(audience, tail)
local rows, count = '', tonumber(ARGV[13])
if stamps[8] then
  rows = group_row({ kind = ROW_MEMBERSHIP, operation = op, scope = scope, generation = generation, revision = revision + 1,
    version = made, head = seq, count = count, audience = audience, flags = row_flags + tonumber(ARGV[14]) * ROW_BIG,
    history_from = history_from, floor = tonumber(m[12]), actor = ARGV[10], policy = ARGV[7], people = people },
    ARGV[1], ARGV[2], pack(ANSWER, made, seq, count, changed, 0))
end
local time, passed = dispatch_append(dispatch, meta, stamps, block, rows, 1, now, tonumber(ARGV[18]))
call('HSET', msgrec, seq, pack('>BBI6I6I6I4', 1, audience, made, time, prev, generation) .. tail)
call('ZADD', msgctl, seq, pack('>I6I6BI6', seq, made, audience, time))
if ahead == 0 then
  call('APPEND', msgsnd, '\0\0\0')
else
  call('APPEND', msgsnd_next, '\0\0\0')
end
if time - tonumber(m[9]) >= SAMPLE_MS then
  call('ZADD', msgts, time, seq)
  call('HSET', grpmeta, 'ts', time)
end
call('XADD', grpchg, string.format('%.0f-0', made), 'd',
  pack('>BI6I6', op, seq, time) .. ARGV[10] .. table.concat(users))

-- Versions that ended before the oldest dispatch entry are not asked for any more; a few go with every change. The
-- oldest change's time is remembered, because a change of 1,000 people is long to read.
if passed > tonumber(m[10] or 0) then
  local oldest = tonumber(string.match(call('XRANGE', dispatch, '-', '+', 'COUNT', 1)[1][1], '^%d+'))
  local lowest
  for _, change in ipairs(call('XRANGE', grpchg, '-', '+', 'COUNT', 4)) do
    local _, _, at = unpack_at('>BI6I6', change[2][2])
    if at >= oldest then
      call('HSET', grpmeta, 'chgat', at)
      break
    end
    lowest = tonumber(string.match(change[1], '^%d+'))
  end
  if lowest then
    call('XTRIM', grpchg, 'MINID', string.format('%.0f-0', lowest + 1))
    call('HSET', grpmeta, 'chglow', lowest)
  end
end

call('HSET', grpmeta, 'version', made, 'revision', revision + 1, 'policy', ARGV[7], 'count', ARGV[13], 'nord', ordinals,
  'big', ARGV[14])
if audience == 2 then call('HSET', grpmeta, 'cseq', seq, 'prevb', prev) end
local answer = pack(ANSWER, made, seq, count, changed, time)
call('HSET', current, ARGV[1], ARGV[2] .. answer)
return { OK, answer }
