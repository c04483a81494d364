-- The rotation of a bucket's idempotency entries (contracts.md, "Idempotency"): two generations are read, the third
-- key is empty. Stamps are stored, so that no jump of the clock ends an entry early.
--   bucket meta: g = generation, s = its start (ms), b = since when the clock is behind s (0: it is not), low = start of
--   the older kept generation (0: nothing was dropped)
local IDEM_AGE_MS = 86400000
local IDEM_MIN_ENTRIES = 10000
local IDEM_GRACE_MS = 600000

-- keys: array with the three keys at first, first + 1, first + 2. Returns the keys of the current and the older
-- generation (false: there is none), `low`, and what stands of the dispatch log in the same hash (dispatch_append).
local function idem_open(meta, keys, first, now)
  local m = redis.call('HMGET', meta, 'g', 's', 'low', 'b', 'ds', 'db', 'dlow', 'arch')
  local g, s, low, b = tonumber(m[1]), tonumber(m[2]), tonumber(m[3]), tonumber(m[4] or 0)
  if not g then
    redis.call('HSET', meta, 'g', 0, 's', now, 'low', 0)
    return keys[first], false, 0, m
  end
  local current = keys[first + g % 3]
  local age, behind = stamp_age(s, b, now)
  if age >= IDEM_AGE_MS and redis.call('HLEN', current) >= IDEM_MIN_ENTRIES then
    low = 0
    if g > 0 then low = s end
    g = g + 1
    local older = current
    current = keys[first + g % 3]
    -- What was read so far as the older generation is dropped: its key is the next one's.
    redis.call('UNLINK', keys[first + (g + 1) % 3])
    redis.call('HSET', meta, 'g', g, 's', now, 'low', low, 'b', 0)
    return current, older, low, m
  end
  if behind ~= b then redis.call('HSET', meta, 'b', behind) end
  if g == 0 then return current, false, low, m end
  return current, keys[first + (g - 1) % 3], low, m
end

-- The stored value of one entry, or false.
local function idem_find(current, older, id)
  return redis.call('HGET', current, id) or (older and redis.call('HGET', older, id))
end

-- Whether an id that was not found is too old to be judged; id_ms is 0 when the id is no UUIDv7. What was made just now
-- by this clock is never too old, also where stamps of a wrong future are kept.
local function idem_too_old(id_ms, low, now)
  return id_ms > 0 and id_ms + IDEM_GRACE_MS < low and math.abs(id_ms - now) > IDEM_GRACE_MS
end
