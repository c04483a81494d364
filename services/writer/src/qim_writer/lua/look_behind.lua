#!lua
-- How far the archive is behind one bucket's dispatch log. Reads only; what cannot be read counts as nothing known.
--
-- KEYS   meta, dispatch
-- ARGV   none
-- Returns [1] messages and state entries that are recorded and not archived, [2] the id of the oldest entry after `arch`,
--         or, where the log has lost all of those, of the newest that it ever had; empty where there is none after `arch`
-- Status codes: none
local call = redis.call
local m = call('HMGET', KEYS[1], 'rec', 'arcd', 'arch')
local behind = math.max((tonumber(m[1] or 0) or 0) - (tonumber(m[2] or 0) or 0), 0)
local arch = m[3] or '0-0'
if not string.find(arch, '^%d+%-%d+$') then arch = '0-0' end
local first = call('XRANGE', KEYS[2], '(' .. arch, '+', 'COUNT', 1)[1]
if first then return {behind, first[1]} end
if behind == 0 or call('EXISTS', KEYS[2]) == 0 then return {behind, ''} end
local info = call('XINFO', 'STREAM', KEYS[2])
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' and info[i + 1] ~= arch then return {behind, info[i + 1]} end
end
return {behind, ''}
