-- The rows of `group_log` as a dispatch entry carries them, in its field `g`; the layout stands in
-- qim_writer/domain/group_rows.py. Only where there is an archive: a script makes none of this otherwise.
local ROW_MEMBERSHIP = 1
local ROW_STATE = 2
local ROW_KEEPS_EARLIER = 1
local ROW_REVOKED = 2
local ROW_BIG = 4
local NO_ID = string.rep('\0', 16)

-- r: kind, operation, scope (tenant u64 and conversation), generation, revision, version, head, count, flags, floor,
--   policy, people (16 bytes each); and where there is such a thing audience, history_from, clear, actor, maker.
-- field, digest, answer: the idempotency entry, '' where there is none; where the answer ends with the commit time, that
--   is still 0 (it is that of the entry).
local function group_row(r, field, digest, answer)
  local maker = r.maker or ''
  if field == '' then
    field, digest, answer = NO_ID, '\0\0\0\0\0\0\0\0', ''
  end
  return struct.pack('>BBc24I4I6I6I6I4BBI6I6I6c16c37c16c8BI2I2', r.kind, r.operation, r.scope, r.generation, r.revision,
    r.version, r.head, r.count, r.audience or 0, r.flags, r.history_from or 0, r.floor, r.clear or 0, r.actor or NO_ID,
    r.policy, field, digest, #maker, #r.people / 16, #answer) .. maker .. r.people .. answer
end
