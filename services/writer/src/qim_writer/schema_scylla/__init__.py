"""The tables of the comparison backend `scylla` beside those of the writer and the session service, as numbered
migrations. `qimctl schema migrate --backend scylla` applies them (qim_common.cassandra.migrations)."""
