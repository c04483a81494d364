-- Blocks of the dispatch log; the layout stands in qim_common/records.py.
local BLOCK_MESSAGES = 1
local BLOCK_STATE = 2
-- Longer tails are not copied into the log; consumers ask the writer for them.
local INLINE_MAX_BYTES = 4096
local NOT_INLINED = 4294967295
local EVENT_NOT_INLINED = 4294967294

-- The flags of a block.
local BIG = 1
local BIG_BEGAN = 2

-- The flags of a change that leaves a group big or not (0 or 1), where before it was that or not.
local function big_flags(before, after)
  if after == 1 and before == 0 then return BIG + BIG_BEGAN end
  return after * BIG
end

-- scope: tenant u64 and conversation, 24 bytes.
local function dispatch_block(kind, scope, flags, generation, version, revision, prev, first, count)
  return struct.pack('>Bc24BI4I6I6I6I6I2', kind, scope, flags, generation, version, revision, prev, first, count)
end

-- A membership event as an item.
local function dispatch_event(audience, tail)
  if #tail > INLINE_MAX_BYTES then return struct.pack('>BI4', audience, EVENT_NOT_INLINED) end
  return struct.pack('>BI4', audience, #tail) .. tail
end

-- An ordinary message as parts behind the n parts of a payload, so that its tail is not copied once more. Returns how
-- many parts there are now.
local ITEM_HEADS = {} -- by the length that they tell: most messages of a call have the lengths of others
local function dispatch_message(parts, n, tail)
  local length = #tail
  local inlined = length <= INLINE_MAX_BYTES
  if not inlined then length = NOT_INLINED end
  local head = ITEM_HEADS[length]
  if not head then
    head = struct.pack('>BI4', 1, length)
    ITEM_HEADS[length] = head
  end
  parts[n + 1] = head
  if not inlined then return n + 1 end
  parts[n + 2] = tail
  return n + 2
end

-- How many steps the retention is taken in: one jump of the clock makes at most one.
local DISPATCH_STEPS = 8
local DISPATCH_TRIM = 100

-- The lower of two ids of entries.
local function lower_id(a, b)
  local a_ms, a_n = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_n = string.match(b, '^(%d+)-(%d+)$')
  a_ms, b_ms = tonumber(a_ms), tonumber(b_ms)
  if a_ms < b_ms or (a_ms == b_ms and tonumber(a_n) < tonumber(b_n)) then return a end
  return b
end

-- Appends one entry and drops a few of those that are past the retention, and archived where there is an archive.
-- Returns the commit time in ms, that of the entry's id, which never falls; and the time before which entries may have
-- gone, 0: none. `stamps`: what idem_open has read of the bucket's meta. `rows`: as group_row makes them, '' for none.
-- `recorded`: the number of messages and state entries in the payload.
--   bucket meta: ds = when the newest mark was set (ms), db = since when the clock is behind ds (0: it is not), dm = the
--   marks, oldest first: ids of entries (ms u48, count u48) at least an eighth of the retention apart, dlow = the id below
--   which entries go, arch = the id up to which all entries are archived (only where there is an archive), rec = how many
--   messages and state entries were recorded since there is one
local function dispatch_append(stream, meta, stamps, payload, rows, recorded, now, retention)
  local ds, db, dlow, arch = stamps[5], stamps[6], stamps[7], stamps[8]
  local lowest = dlow
  if arch then
    if dlow then lowest = lower_id(dlow, arch) end
    redis.call('HINCRBY', meta, 'rec', recorded)
  end
  local id
  if rows ~= '' then
    id = redis.call('XADD', stream, 'MINID', '~', lowest or '0-0', 'LIMIT', DISPATCH_TRIM, '*', 'e', payload, 'g', rows)
  elseif lowest then
    id = redis.call('XADD', stream, 'MINID', '~', lowest, 'LIMIT', DISPATCH_TRIM, '*', 'e', payload)
  else
    id = redis.call('XADD', stream, '*', 'e', payload)
  end
  local time = tonumber(string.match(id, '^%d+'))
  local b = tonumber(db or 0)
  local age, behind = stamp_age(tonumber(ds or 0), b, now)
  if age * DISPATCH_STEPS >= retention then
    local marks = (redis.call('HGET', meta, 'dm') or '') .. struct.pack('>I6I6', time, tonumber(string.match(id, '%d+$')))
    if #marks > DISPATCH_STEPS * 12 then
      redis.call('HSET', meta, 'dlow', string.format('%.0f-%.0f', struct.unpack('>I6I6', marks)))
      marks = string.sub(marks, 13)
    end
    redis.call('HSET', meta, 'ds', now, 'db', 0, 'dm', marks)
  elseif behind ~= b then
    redis.call('HSET', meta, 'db', behind)
  end
  return time, tonumber(lowest and string.match(lowest, '^%d+') or 0)
end
