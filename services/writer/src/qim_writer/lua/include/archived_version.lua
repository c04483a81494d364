-- The membership version that the archive has, with ack level archived: that of the archived head, where a change waits for
-- the archive; 0 where the creation itself does. Returns false where nothing waits: the present one.
local function archived_version(grpmeta, grpchg)
  local WALK = 64
  local m = redis.call('HMGET', grpmeta, 'version', 'revision', 'aseq', 'arev')
  local archived = tonumber(m[4] or 0)
  if not m[1] or archived >= tonumber(m[2]) then return false end
  if archived == 0 then return '0' end
  local head, version, upper = tonumber(m[3] or 0), tonumber(m[1]), '+'
  while true do
    local changes = redis.call('XREVRANGE', grpchg, upper, '-', 'COUNT', WALK)
    for _, change in ipairs(changes) do
      local _, seq = struct.unpack('>BI6', change[2][2])
      if seq <= head then return string.format('%.0f', version) end
      version = version - 1
    end
    if #changes < WALK then return string.format('%.0f', version) end
    upper = string.format('%.0f-0', version)
  end
end
