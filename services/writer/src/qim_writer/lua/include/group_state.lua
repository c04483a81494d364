-- What a change without a seq does to a group: the revision, the state entry of the dispatch log, who made it, and the
-- answer that repeats are given.
-- answer: revision u48, version u48, count u32, head u48, floor u48, generation u32, created u48, policy
local function group_answer(revision, version, count, head, floor, generation, created, policy)
  return struct.pack('>I6I6I4I6I6I4I6', revision, version, count, head, floor, generation, created) .. policy
end

-- Appends the state entry, with its row where there is an archive ('': there is none); returns the commit time in ms.
local function state_entry(dispatch, meta, stamps, scope, big, generation, version, revision, head, change, payload, rows, now,
    retention)
  local block = dispatch_block(BLOCK_STATE, scope, big, generation, version, revision, 0, head, 1)
    .. struct.pack('>BI4', change, #payload) .. payload
  return dispatch_append(dispatch, meta, stamps, block, rows, 1, now, retention)
end

-- Who made which change, under the id `revision-0`: change u8, time u48, version u48, head u48, maker (length u8 first),
-- payload.
local function log_change(grplog, revision, change, time, version, head, maker, payload)
  redis.call('XADD', grplog, string.format('%.0f-0', revision), 'd',
    struct.pack('>BI6I6I6B', change, time, version, head, #maker) .. maker .. payload)
end
