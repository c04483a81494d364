-- The rotation of a bucket's idempotency entries (contracts.md, "Idempotency"): two generations are read, the third
-- key is being dropped. Stamps are stored, so that no jump of the clock ends an entry early.
--   bucket meta: g = generation, s = its start (ms), low = start of the older kept generation (0: nothing was dropped)
local IDEM_AGE_MS = 86400000
local IDEM_MIN_ENTRIES = 10000
local IDEM_GRACE_MS = 600000

-- keys: array with the three keys at first, first + 1, first + 2. Returns the keys of the current and the older
-- generation (false: there is none) and `low`.
local function idem_open(meta, keys, first, now)
  local m = redis.call('HMGET', meta, 'g', 's', 'low')
  local g, s, low = tonumber(m[1]), tonumber(m[2]), tonumber(m[3])
  if not g then
    redis.call('HSET', meta, 'g', 0, 's', now, 'low', 0)
    return keys[first], false, 0
  end
  local current = keys[first + g % 3]
  if now - s >= IDEM_AGE_MS and redis.call('HLEN', current) >= IDEM_MIN_ENTRIES then
    low = 0
    if g > 0 then low = s end
    g = g + 1
    local older = current
    current = keys[first + g % 3]
    redis.call('UNLINK', current)
    redis.call('HSET', meta, 'g', g, 's', now, 'low', low)
    return current, older, low
  end
  if g == 0 then return current, false, low end
  return current, keys[first + (g - 1) % 3], low
end

-- The stored value of one entry, or false.
local function idem_find(current, older, id)
  return redis.call('HGET', current, id) or (older and redis.call('HGET', older, id))
end

-- Whether an id that was not found is too old to be judged; id_ms is 0 when the id is no UUIDv7.
local function idem_too_old(id_ms, low)
  return id_ms > 0 and id_ms + IDEM_GRACE_MS < low
end
