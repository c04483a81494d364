-- Blocks of the dispatch log; the layout stands in qim_common/records.py.
local BLOCK_MESSAGES = 1
local BLOCK_STATE = 2
local INLINE_MAX_BYTES = 4096
local NOT_INLINED = 4294967295

-- scope: tenant u64 and conversation, 24 bytes.
local function dispatch_block(kind, scope, big, generation, version, revision, prev, first, count)
  return struct.pack('>B', kind) .. scope
    .. struct.pack('>BI4I6I6I6I6I2', big, generation, version, revision, prev, first, count)
end

local function dispatch_item(code, tail)
  if #tail > INLINE_MAX_BYTES then return struct.pack('>BI4', code, NOT_INLINED) end
  return struct.pack('>BI4', code, #tail) .. tail
end

-- Appends one entry, drops what is past the retention, and returns the commit time in ms: that of the entry's id,
-- which never falls.
local function dispatch_append(stream, payload, now, retention)
  local cut = string.format('%.0f', math.max(now - retention, 0))
  local id = redis.call('XADD', stream, 'MINID', '~', cut, '*', 'e', payload)
  return tonumber(string.match(id, '^%d+'))
end

local function server_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
