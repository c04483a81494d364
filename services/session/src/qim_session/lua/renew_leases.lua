#!lua
-- A replica's heartbeat: it keeps what it holds, gives away what is above its fair share, and takes what nobody alive
-- holds up to it (storage.md, "Session": replicas share partitions by leases). Whoever misses its heartbeats for a
-- lease's life is dead, and everything it held is free.
--
-- KEYS[1]  leases, a hash: partition to holder
-- KEYS[2]  replicas, a sorted set: holder by the time (ms of this instance) it is taken for dead
-- ARGV[1]  the replica, ARGV[2] a lease's life in ms, ARGV[3] the number of partitions, which are numbered from 0
-- Returns  the partitions that the replica holds now
-- Status   none
local me, life, partitions = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
redis.call('ZADD', KEYS[2], string.format('%.0f', now + life), me)
local replicas = redis.call('ZRANGE', KEYS[2], 0, -1)
-- The same order in every replica's call, so that the shares add up.
table.sort(replicas)
local alive, share = {}, 0
for i = 1, #replicas do
  alive[replicas[i]] = true
  if replicas[i] == me then
    share = math.floor(partitions / #replicas) + (i <= partitions % #replicas and 1 or 0)
  end
end
local holders, stored = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #stored, 2 do
  holders[tonumber(stored[i])] = stored[i + 1]
end
local held = {}
for partition = 0, partitions - 1 do
  if holders[partition] == me then
    if #held < share then
      held[#held + 1] = partition
    else
      redis.call('HDEL', KEYS[1], partition)
    end
  end
end
for partition = 0, partitions - 1 do
  if #held >= share then
    break
  end
  local holder = holders[partition]
  if not alive[holder or ''] then
    redis.call('HSET', KEYS[1], partition, me)
    held[#held + 1] = partition
  end
end
return held
