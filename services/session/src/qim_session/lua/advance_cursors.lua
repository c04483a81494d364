#!lua
-- Move cursors, forward only: by generation, then by seq (contracts.md, "Services": device cursors; design.md invariant
-- 7: read cursors).
--
-- KEYS[1]  read cursors, or a device's cursors, a hash: conversation to generation u32, seq u64, big-endian
-- KEYS[2]  usig, a stream: told when a cursor has moved
-- KEYS[3]  unflushed, a hash: which cursors and flags are still to be written behind
-- ARGV[1]  the signal; empty: nobody is told
-- ARGV[2]  the person's part of a field of KEYS[3]; empty: nothing is written behind
-- ARGV     from [3] on pairs of conversation and packed cursor, at most 1,000 pairs, each conversation once
-- Returns  how many cursors moved
-- Status   none
-- @include signal
local moved = 0
for i = 3, #ARGV, 2 do
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  local generation, seq = struct.unpack('>I4I8', ARGV[i + 1])
  local forward = true
  if stored then
    -- Seqs stay below 2^53, so that doubles compare them exactly.
    local old_generation, old_seq = struct.unpack('>I4I8', stored)
    forward = generation > old_generation or (generation == old_generation and seq > old_seq)
  end
  if forward then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    if ARGV[2] ~= '' then
      redis.call('HSET', KEYS[3], ARGV[2] .. ARGV[i], ARGV[i + 1])
    end
    moved = moved + 1
  end
end
if moved > 0 and ARGV[1] ~= '' then
  signal(KEYS[2], ARGV[1])
end
return moved
