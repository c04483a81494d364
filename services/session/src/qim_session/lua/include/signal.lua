-- Tell a person's other devices of what was set: the stream's last 100,000 or so are kept
-- (qim_session/domain/signals.py has the layout).
local function signal(stream, packed)
  redis.call('XADD', stream, 'MAXLEN', '~', 100000, '*', 'e', packed)
end
