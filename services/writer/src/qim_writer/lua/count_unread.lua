#!lua flags=no-writes
-- Counts what does not count as unread in stretches of seqs: control messages and the person's own, without reading a
-- message (design.md invariant 7). The caller bounds the seqs of one call.
--
-- KEYS   for each stretch: msgctl, msgsnd:k
-- ARGV   for each stretch: first seq and last seq (both in segment k), the person's ordinal (3 bytes)
-- Returns for each stretch the number of seqs that do not count; -1 where the column is gone, because the floor has passed it
-- Status codes: none
local SEGMENT = 65536
local out = {}
for i = 1, #ARGV / 3 do
  local first, last, ordinal = tonumber(ARGV[3 * i - 2]), tonumber(ARGV[3 * i - 1]), ARGV[3 * i]
  local skipped = redis.call('ZCOUNT', KEYS[2 * i - 1], first, last)
  local base = math.floor((first - 1) / SEGMENT) * SEGMENT
  local column = redis.call('GETRANGE', KEYS[2 * i], (first - 1 - base) * 3, (last - base) * 3 - 1)
  if #column ~= (last - first + 1) * 3 then skipped = -1 end
  local at = skipped >= 0 and string.find(column, ordinal, 1, true)
  while at do
    if at % 3 == 1 then
      skipped = skipped + 1
      at = string.find(column, ordinal, at + 3, true)
    else
      at = string.find(column, ordinal, at + 1, true)
    end
  end
  out[i] = skipped
end
return out
