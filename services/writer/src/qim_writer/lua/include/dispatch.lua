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

-- Appends one entry and drops a few of those that are past the retention. Returns the commit time in ms, that of the
-- entry's id, which never falls; and the time before which entries may have gone, 0: none. `stamps`: what idem_open has
-- read of the bucket's meta; left out, it is read here.
--   bucket meta: ds = when the newest mark was set (ms), db = since when the clock is behind ds (0: it is not), dm = the
--   marks, oldest first: ids of entries (ms u48, count u48) at least an eighth of the retention apart, dlow = the id below
--   which entries go
local function dispatch_append(stream, meta, payload, now, retention, stamps)
  local ds, db, dlow
  if stamps then
    ds, db, dlow = stamps[5], stamps[6], stamps[7]
  else
    ds, db, dlow = unpack(redis.call('HMGET', meta, 'ds', 'db', 'dlow'))
  end
  local id
  if dlow then
    id = redis.call('XADD', stream, 'MINID', '~', dlow, 'LIMIT', DISPATCH_TRIM, '*', 'e', payload)
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
  return time, tonumber(dlow and string.match(dlow, '^%d+') or 0)
end
