-- The instance's clock, which may jump in both directions. Whatever ends by age compares stored stamps, each step of
-- which one jump can take once (docs/decisions/0005-clock-jumps.md).
local function server_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- How old a stored stamp is, in ms. A clock that is behind the stamp ages it only from when that was first seen
-- (`behind`, 0: it is not): so a jump back and forth ages nothing, and a stamp of a wrong future does not stay young.
-- Returns the age, and `behind` as it is to be stored.
local function stamp_age(stamp, behind, now)
  if now >= stamp then return now - stamp, 0 end
  if behind == 0 or now < behind then return 0, now end
  return now - behind, behind
end
