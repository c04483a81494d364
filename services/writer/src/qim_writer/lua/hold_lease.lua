#!lua
-- Takes, renews or gives up the lease of an archiver. Two at once do no harm, so a life by the server's clock is enough.
--
-- KEYS   lease
-- ARGV   [1] token of the holder, [2] its life in ms from now; 0: give it up
-- Returns 1 where the token has the lease now, else 0
-- Status codes: none
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
