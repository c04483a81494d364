#!lua
-- Commits the sends of many conversations in one atomic step (design.md invariant 1): per message looks the id up,
-- checks the sender's membership, the freeze and the expected version, allocates the seq and writes the record.
-- A refused send takes no seq. In cluster mode the caller sends one call per bucket.
--
-- KEYS   for each bucket: meta, dispatch, memlog, idem0, idem1, idem2
--        then for each of its runs (one conversation each): grpmeta, grpcur, msgcseq, msgrec, msgsnd:k, msgsnd:k+1,
--        msgts, and grpmem when the run is of a direct conversation
-- ARGV   [1] plan, [2] retention of the dispatch log in ms, then for each run: scope (tenant u64 and conversation), for a
--        direct conversation its people (each user and mailbox shard u16), the senders, and, of its n messages, n
--        idempotency fields, n digests (8 bytes), n record tails
-- plan   buckets u16, then for each bucket: runs u16, then for each run: direct u8, messages u16 (at most 256), senders
--        u16, segment k u32, then for each message: sender u16 (from 1; + 32,768 where the message names the peer),
--        expected version u48 (0: any), id time u48 (0: none)
-- Returns one string: for each message in the order of the plan 23 bytes: status u8, seq u48, time u48, version u48,
--        generation u32 (zero where refused; with MEMBERSHIP_CHANGED the version is the present one, with NEED_SEGMENT
--        the seq is the head). Committed are those with the status 0 and 9; 9 (QUIET): the answer is that of an earlier
--        send with this id, or the conversation is big
-- Status codes: qim_writer/backends/redis/status.py
-- @include clock
-- @include idempotency
-- @include dispatch
-- @include group_rows
-- @include samples
local DENIED, FROZEN, CHANGED, REUSED, TOO_OLD, NEED_SEGMENT, QUIET = 1, 2, 3, 4, 5, 6, 9
local CREATED = 1
local SEGMENT = 65536
local RUN_MAX = 256
local NAMES_PEER = 32768

local unpack_at, pack = struct.unpack, struct.pack
local byte, char, sub, concat = string.byte, string.char, string.sub, table.concat
local call, floor = redis.call, math.floor
-- As locals, because each is read several times a message.
local keys, args = KEYS, ARGV
local plan, retention = args[1], tonumber(args[2])
local now = server_ms()
local at, key, arg = 3, 1, 3
local NO_POLICY = string.rep('\0', 37)
local NOTHING, quiet = string.rep('\0', 22), char(QUIET)
-- Of answer k the status stands at 2k - 1 and the 22 bytes after it at 2k.
local out, out_n = {}, 0
-- The same id twice in one call: the places of the second answer and of the first.
local twins, firsts, twin_n = {}, {}, 0
-- Of each id that was accepted the place of its answer, and of that the place of its digest in ARGV. The ids of
-- different conversations never meet.
local taken, digest_at = {}, {}
-- Filled again for every bucket or run, so that no table is grown anew each time. Their lengths are kept beside them.
local payload, records, entries, columns = {}, {}, {}, {}

-- The newest stay of both people of a direct conversation that its first send creates.
local function create_direct(grpmeta, grpcur, grpmem, memlog, scope, people)
  local count = #people / 18
  local users = {}
  for i = 0, count - 1 do
    local user = sub(people, i * 18 + 1, i * 18 + 16)
    users[i + 1] = user
    call('HSET', grpcur, user, pack('>BBI3I6I6I6I6I6I6', 1, 1, i + 1, 0, 0, 0, 1, 0, 0))
    call('ZADD', grpmem, 0, sub(people, i * 18 + 17, i * 18 + 18) .. user)
  end
  -- In the order of create_group.lua; the time of the creation is that of the entry, which comes last.
  call('HSET', grpmeta, 'version', 1, 'revision', 1, 'generation', 0, 'policy', NO_POLICY, 'cseq', 0,
    'prevb', 0, 'big', 0, 'ts', 0, 'count', count, 'floor', 0, 'nord', count, 'chglow', 1)
  users = concat(users)
  call('XADD', memlog, '*', 'e', scope .. pack('>I2', count) .. users)
  return dispatch_block(BLOCK_STATE, scope, 0, 0, 1, 1, 0, 0, 1) .. pack('>BI4', CREATED, 0), users
end

local buckets = unpack_at('>I2', plan)
for _ = 1, buckets do
  local meta, dispatch, memlog, idem = keys[key], keys[key + 1], keys[key + 2], key + 3
  key = key + 6
  local current, older, low, stamps = idem_open(meta, keys, idem, now)
  local runs = unpack_at('>I2', plan, at)
  at = at + 2
  local payload_n, commits, commit_n, recorded, rows = 0, {}, 0, 0, ''
  for _ = 1, runs do
    local direct, n, nsenders, segment
    direct, n, nsenders, segment = unpack_at('>BI2I2I4', plan, at)
    at = at + 9
    local grpmeta, grpcur, msgcseq, msgrec = keys[key], keys[key + 1], keys[key + 2], keys[key + 3]
    local msgsnd, msgsnd_next, msgts = keys[key + 4], keys[key + 5], keys[key + 6]
    key = key + 7
    local scope, people, grpmem = args[arg], nil, nil
    arg = arg + 1
    if direct == 1 then
      grpmem, people = keys[key], args[arg]
      key, arg = key + 1, arg + 1
    end
    local senders, fields = arg, arg + nsenders
    local digests, tails = fields + n, fields + 2 * n
    arg = tails + n

    local m = call('HMGET', grpmeta, 'version', 'revision', 'generation', 'policy', 'cseq', 'prevb', 'big', 'ts')
    local stays = call('HMGET', grpcur, unpack(args, senders, fields - 1))
    local found = call('HMGET', current, unpack(args, fields, digests - 1))
    local found_older = older and call('HMGET', older, unpack(args, fields, digests - 1))
    local version = tonumber(m[1])
    local frozen = version and byte(m[4]) == 1
    -- From each sender's stay what the column holds of a member; false for somebody else.
    for s = 1, nsenders do
      local stay = stays[s]
      stays[s] = stay and byte(stay, 2) % 2 == 1 and sub(stay, 3, 5)
    end
    local accepted, count = {}, 0
    local first_out, born, created = out_n, version, false

    for i = 1, n do
      local sender, expected, id_ms = unpack_at('>I2I6I6', plan, at)
      at = at + 14
      local names_peer = sender >= NAMES_PEER
      if names_peer then sender = sender - NAMES_PEER end
      out_n = out_n + 1
      local id = args[fields + i - 1]
      local entry = found[i] or (found_older and found_older[i])
      local twin = taken[id]
      local ordinal = stays[sender]
      -- Only a send that names the peer creates a direct conversation; those after it in the run find it there.
      if not ordinal and not version and (names_peer or born) then
        for p = 0, #people / 18 - 1 do
          if sub(people, p * 18 + 1, p * 18 + 16) == args[senders + sender - 1] then
            ordinal = pack('>I3', p + 1)
          end
        end
      end
      local status, rest = nil, NOTHING
      if entry then
        status = REUSED
        if sub(entry, 1, 8) == args[digests + i - 1] then
          status, rest = QUIET, sub(entry, 9)
        end
      elseif twin then
        status = REUSED
        if args[digest_at[twin]] == args[digests + i - 1] then
          status = QUIET
          twin_n = twin_n + 1
          twins[twin_n], firsts[twin_n] = out_n, twin
        end
      elseif idem_too_old(id_ms, low, now) then
        status = TOO_OLD
      elseif not ordinal then
        status = DENIED
      elseif frozen then
        status = FROZEN
      elseif expected > 0 and expected ~= (version or 1) then
        status, rest = CHANGED, pack('>I6I6I6I4', 0, 0, version or 1, 0)
      else
        count = count + 1
        accepted[count], columns[count] = i, ordinal
        taken[id], digest_at[out_n] = out_n, digests + i - 1
        born = true
      end
      if status then
        out[2 * out_n - 1], out[2 * out_n] = char(status), rest
      end
    end

    if count > 0 then
      local head = call('INCRBY', msgcseq, count) - count
      -- Judged by the head alone, not by the length of this run: of two calls on their way with the same k the second is
      -- never taken where the first was not, so that the sends of one conversation keep their order.
      local ahead = floor(head / SEGMENT) - segment
      if ahead < 0 or ahead > 1 or (ahead == 1 and head % SEGMENT > SEGMENT - RUN_MAX) then
        call('DECRBY', msgcseq, count)
        for n = 1, count do
          local o = 2 * (first_out + accepted[n])
          out[o - 1], out[o] = char(NEED_SEGMENT), pack('>I6I6I6I4', head, 0, 0, 0)
        end
      else
        if not version then
          payload_n = payload_n + 1
          local users
          payload[payload_n], users = create_direct(grpmeta, grpcur, grpmem, memlog, scope, people)
          recorded = recorded + 1
          if stamps[8] then
            rows = rows .. group_row({ kind = ROW_STATE, operation = CREATED, scope = scope, generation = 0, revision = 1,
              version = 1, head = 0, count = #users / 16, flags = 0, floor = 0, policy = NO_POLICY, people = users }, '', '', '')
          end
          version, created, m = 1, true, { '1', '1', '0', '', '0', '0', '0', '0' }
        end
        local room = (segment + 1) * SEGMENT - head
        if count <= room then
          call('APPEND', msgsnd, concat(columns, '', 1, count))
        elseif room <= 0 then
          call('APPEND', msgsnd_next, concat(columns, '', 1, count))
        else
          call('APPEND', msgsnd, concat(columns, '', 1, room))
          call('APPEND', msgsnd_next, concat(columns, '', room + 1, count))
        end
        local prev = head
        if tonumber(m[5]) == head then prev = tonumber(m[6]) end
        payload_n = payload_n + 1
        payload[payload_n] = dispatch_block(BLOCK_MESSAGES, scope, tonumber(m[7]), tonumber(m[3]), version,
          tonumber(m[2]), prev, head + 1, count)
        for n = 1, count do
          payload_n = dispatch_message(payload, payload_n, args[tails + accepted[n] - 1])
        end
        commit_n, recorded = commit_n + 1, recorded + count
        commits[commit_n] = { accepted, head, prev, version, tonumber(m[3]), fields, digests, tails, msgrec,
          first_out, msgts, grpmeta, tonumber(m[8]), count, m[7] == '1' and quiet or '\0', created }
      end
    end
  end

  if commit_n > 0 then
    local time = dispatch_append(dispatch, meta, stamps, concat(payload, '', 1, payload_n), rows, recorded, now, retention)
    local e = 0
    for k = 1, commit_n do
      local c = commits[k]
      local accepted, head, prev, version, generation = c[1], c[2], c[3], c[4], c[5]
      local fields, digests, tails, first_out, count, status = c[6], c[7], c[8], c[10], c[14], c[15]
      local lead = pack('>BBI6I6', 1, 1, version, time)
      local rest = pack('>I6I6I4', time, version, generation)
      local generation_bytes = sub(rest, 13)
      local prev_bytes = pack('>I6', prev)
      local r = 0
      for n = 1, count do
        local i = accepted[n]
        local seq_bytes = pack('>I6', head + n)
        local answer = seq_bytes .. rest
        records[r + 1] = head + n
        records[r + 2] = lead .. prev_bytes .. generation_bytes .. args[tails + i - 1]
        r = r + 2
        entries[e + 1] = args[fields + i - 1]
        entries[e + 2] = args[digests + i - 1] .. answer
        e = e + 2
        local o = 2 * (first_out + i)
        out[o - 1], out[o] = status, answer
        prev_bytes = seq_bytes
      end
      call('HSET', c[9], unpack(records, 1, r))
      if c[16] then call('HSET', c[12], 'created', time) end
      local last = head + count
      if floor(last / SAMPLE_SEQS) > floor(head / SAMPLE_SEQS) or time - c[13] >= SAMPLE_MS then
        call('ZADD', c[11], time, last)
        call('HSET', c[12], 'ts', time)
      end
    end
    call('HSET', current, unpack(entries, 1, e))
  end
end

for t = 1, twin_n do
  local o, first = 2 * twins[t], 2 * firsts[t]
  out[o - 1], out[o] = out[first - 1], out[first]
end
return concat(out, '', 1, 2 * out_n)
