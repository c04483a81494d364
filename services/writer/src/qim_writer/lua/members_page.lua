#!lua flags=no-writes
-- One page of the present members, with the version at which it was read and the changes since a version, so that a
-- reader of an old version can undo them (design.md invariant 3).
--
-- KEYS   grpmeta, grpmem, grpcur, grpchg
-- ARGV   [1] lower bound, [2] upper bound (as of ZRANGEBYLEX), [3] page size, [4] 1 = with the newest stays,
--        [5] changes after this version are returned, at most 100 ('': none), [6] with ack level archived only: anything
-- Returns { version, count, policy, change log's low watermark, members, stays, changes, archived version }; version is
--        false where there is no conversation, the last false where no change waits for the archive, or without [6]
-- Status codes: none
-- @include archived_version
local m = redis.call('HMGET', KEYS[1], 'version', 'count', 'policy', 'chglow')
local members = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local stays, changes = {}, {}
if ARGV[4] == '1' and #members > 0 then
  local users = {}
  for i, member in ipairs(members) do users[i] = string.sub(member, 3) end
  stays = redis.call('HMGET', KEYS[3], unpack(users))
end
if ARGV[5] ~= '' then
  changes = redis.call('XRANGE', KEYS[4], string.format('%.0f-0', tonumber(ARGV[5]) + 1), '+', 'COUNT', 100)
end
return { m[1], m[2], m[3], m[4], members, stays, changes, ARGV[6] and archived_version(KEYS[1], KEYS[4]) or false }
