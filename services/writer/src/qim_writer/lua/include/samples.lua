-- Samples of commit times in msgts, from which retention by age finds its floor: at least one for each SAMPLE_SEQS seqs,
-- and where a message comes SAMPLE_MS or more after the newest of them.
local SAMPLE_SEQS, SAMPLE_MS = 1000, 3600000
