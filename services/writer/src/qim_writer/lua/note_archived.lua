#!lua
-- Notes that the entries of one bucket's dispatch log up to an id are archived, with what they brought of each
-- conversation. Compare-and-set: only where `arch` is what the archiver read from, so that two at once do no harm.
--
-- KEYS   meta, dispatch, hot, then for each conversation: grpmeta
-- ARGV   [1] expected `arch`, [2] new `arch`, [3] messages and state entries between, [4] entries between, then for each
--        conversation: scope (tenant u64 and conversation), archived head (0: no message), archived revision, commit time
--        (ms) of the oldest message
-- Returns a status code
-- Status codes: 0 noted; 1 `arch` is another one; 2 the log has lost entries after `arch`. Nothing is changed by 1 and 2
local NOTED, MOVED, TRIMMED = 0, 1, 2
local call = redis.call
local meta, dispatch, hot = KEYS[1], KEYS[2], KEYS[3]
local expected = ARGV[1]
if call('HGET', meta, 'arch') ~= expected then return MOVED end
-- Trimming keeps the entry at `arch`, so that or an older one is the first; otherwise no more may be gone than was archived.
if #call('XRANGE', dispatch, '-', expected, 'COUNT', 1) == 0 then
  local info = call('XINFO', 'STREAM', dispatch)
  local facts = {}
  for i = 1, #info, 2 do facts[info[i]] = info[i + 1] end
  if facts['entries-added'] - facts['length'] > tonumber(call('HGET', meta, 'archn') or 0) then return TRIMMED end
end
for c = 1, #KEYS - 3 do
  local grpmeta, at = KEYS[c + 3], c * 4 + 1
  local scope, head, revision = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local m = call('HMGET', grpmeta, 'version', 'aseq', 'arev')
  if m[1] then
    if head > tonumber(m[2] or -1) and revision > tonumber(m[3] or -1) then
      call('HSET', grpmeta, 'aseq', ARGV[at + 1], 'arev', ARGV[at + 2])
    elseif head > tonumber(m[2] or -1) then
      call('HSET', grpmeta, 'aseq', ARGV[at + 1])
    elseif revision > tonumber(m[3] or -1) then
      call('HSET', grpmeta, 'arev', ARGV[at + 2])
    end
    if head > 0 then call('ZADD', hot, 'NX', ARGV[at + 3], scope) end
  end
end
call('HINCRBY', meta, 'arcd', ARGV[3])
call('HINCRBY', meta, 'archn', ARGV[4])
call('HSET', meta, 'arch', ARGV[2])
return NOTED
