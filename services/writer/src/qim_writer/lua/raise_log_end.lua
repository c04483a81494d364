#!lua
-- Raises the end of a dispatch log: ids up to the new end are never given out (again), so that no entry lands below the
-- place of a consumer and commit times do not fall. A log without an entry gets such an end too. Never lowers it.
--
-- KEYS   dispatch
-- ARGV   [1] the least ms that the end has
-- Returns the new end, above the former one
-- Status codes: none
local call = redis.call
local dispatch = KEYS[1]
if call('EXISTS', dispatch) == 0 then
  -- As a log that never had an entry: nobody may take it for one that was trimmed.
  call('XADD', dispatch, '0-1', 'e', '')
  call('XTRIM', dispatch, 'MAXLEN', 0)
  call('XSETID', dispatch, '0-1', 'ENTRIESADDED', 0, 'MAXDELETEDID', '0-0')
end
local info = call('XINFO', 'STREAM', dispatch)
local facts = {}
for i = 1, #info, 2 do facts[info[i]] = info[i + 1] end
local ms, n = string.match(facts['last-generated-id'], '^(%d+)-(%d+)$')
local new = string.format('%.0f-0', tonumber(ARGV[1]))
if tonumber(ms) >= tonumber(ARGV[1]) then new = string.format('%s-%.0f', ms, tonumber(n) + 1) end
call('XSETID', dispatch, new)
return new
