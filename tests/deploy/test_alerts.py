"""The alerts of components/monitoring name what the code has, and fire on what they are for and on nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import grpc
import yaml
from tests.support.alerts import PROMETHEUS, alert_rules, groups, metrics_of
from tests.support.registered_metrics import declared_metrics
from tests.support.valkey import missing

from qim_common.config import WriterSettings
from qim_common.errors import Reason

FLAT: Final = "0x80"
"""A series that stays 0 for 20 minutes, at one value a quarter of a minute."""
HEALTHY: Final = {
    'up{job="qim-writer",pod="w"}': "1x80",
    'up{job="qim-writer",pod="v"}': "1x80",
    'up{job="qim-session",pod="s"}': "1x80",
    'up{job="qim-admin",pod="o"}': "1x80",
    'qim_instance_fenced{instance="0",pod="w"}': FLAT,
    'qim_rpc_requests_total{job="qim-writer",pod="w",method="m",code="OK",reason=""}': "0+9x80",
    'qim_rpc_requests_total{job="qim-writer",pod="w",code="PERMISSION_DENIED",reason="PERMISSION_DENIED"}': "0+1x80",
    'qim_reloads_total{pod="w",what="bindings",outcome="ok"}': "0+1x80",
    'qim_writer_replicas_missing{instance="0"}': FLAT,
    'qim_writer_outbox_messages{instance="0",pod="w"}': "5x80",
    'qim_writer_outbox_messages{instance="0",pod="v"}': "5x80",
    'qim_writer_outbox_messages{instance="1",pod="w"}': "5x80",
    'qim_archiver_leases_held{pod="a"}': "1x80",
    'qim_archiver_leases_held{pod="b"}': "1x80",
    'qim_archiver_lag_seconds{instance="0"}': "1x80",
    'qim_session_partitions_held{job="qim-session",pod="s"}': "100x80",
    'qim_session_partitions_held{job="qim-session",pod="t"}': "156x80",
    'qim_cassandra_connected{pod="w"}': "1x80",
    'kubelet_volume_stats_available_bytes{persistentvolumeclaim="data-qim-valkey-0"}': "60x80",
    'kubelet_volume_stats_capacity_bytes{persistentvolumeclaim="data-qim-valkey-0"}': "100x80",
}
"""Series of an installation that is well, without the namespace that they all have."""

STATES: Final[dict[str, dict[str, str]]] = {
    "QimProcessDown": {'up{job="qim-writer",pod="w"}': "1x40 0x40"},
    "QimServiceAbsent": {'up{job="qim-session",pod="s"}': "1x40 _x40"},
    "QimReloadFailed": {'qim_reloads_total{pod="w",what="bindings",outcome="failed"}': "_x40 1x40"},
    "QimOverloaded": {
        'qim_rpc_requests_total{job="qim-writer",code="RESOURCE_EXHAUSTED",reason="OVERLOADED"}': "_x40 0+1x40"
    },
    "QimInternalErrors": {
        'qim_rpc_requests_total{job="qim-writer",method="m",code="INTERNAL",reason="INTERNAL"}': "_x40 1x40"
    },
    "QimIntervalMissing": {"qim_session_group_interval_missing_total": "0x40 1x40"},
    "QimInstanceFenced": {'qim_instance_fenced{instance="0",pod="w"}': "0x79 1"},
    "QimBackendUnavailable": {
        'qim_rpc_requests_total{job="qim-writer",code="UNAVAILABLE",reason="BACKEND_UNAVAILABLE"}': "_x40 0+1x40"
    },
    "QimReplicasMissing": {'qim_writer_replicas_missing{instance="0"}': "0x40 1x40"},
    "QimValkeyVolumeFilling": {
        'kubelet_volume_stats_available_bytes{persistentvolumeclaim="data-qim-valkey-0"}': "60x30 20x50"
    },
    "QimArchiverLag": {'qim_archiver_lag_seconds{instance="0"}': "1x40 100+15x40"},
    "QimArchiveBacklogFull": {"qim_writer_outbox_refusals_total": "0x70 0+1x10"},
    "QimInstanceNotArchived": {'qim_archiver_leases_held{pod="b"}': "1x40 0x40"},
    "QimBucketRefused": {'qim_archiver_buckets_refused{instance="1"}': "0x40 2x40"},
    "QimArchiveMissing": {"qim_writer_archive_missing_total": "0x40 1x40"},
    "QimCassandraNotConnected": {'qim_cassandra_connected{pod="w"}': "1x40 0x40"},
    "QimPartitionsNotHeld": {'qim_session_partitions_held{job="qim-session",pod="t"}': "156x40 0x40"},
    "QimPartitionRefused": {'qim_session_partitions_refused_total{job="qim-session"}': "0x70 0+1x10"},
    "QimDispatchLag": {'qim_session_dispatch_lag_seconds{job="qim-session",instance="0"}': "0x40 31+15x40"},
    "QimTailLag": {'qim_session_tail_lag_seconds{pod="s",instance="0"}': "0x40 11+15x40"},
    "QimDispatchGap": {'qim_session_dispatch_gaps_total{job="qim-session"}': "0x40 1x40"},
    "QimAudienceUnresolved": {'qim_session_audiences_unresolved_total{job="qim-session"}': "0x40 1x40"},
    "QimPushFailing": {'qim_push_failures_total{job="qim-push-webhook"}': "0x30 0+1x50"},
}
"""What is not well, for each alert; the last moment is looked at."""


def test_alerts_look_at_metrics_labels_and_reasons_that_there_are() -> None:
    for rule in alert_rules():
        expression = rule["expr"]
        assert metrics_of(rule) <= declared_metrics(), rule["alert"]
        others = set(re.findall(r"\b(up|[a-z]+_[a-z_]+_bytes)\b", expression)) - metrics_of(rule)
        assert others <= PROMETHEUS
        assert metrics_of(rule) | others, f"{rule['alert']} looks at nothing"
        assert set(re.findall(r'reason="(\w+)"', expression)) <= set(Reason)
        assert set(re.findall(r'code="(\w+)"', expression)) <= {code.name for code in grpc.StatusCode}


def test_the_number_of_partitions_is_that_of_the_defaults() -> None:
    (rule,) = (rule for rule in alert_rules() if rule["alert"] == "QimPartitionsNotHeld")
    assert rule["expr"].endswith(f" < {WriterSettings.model_fields['commit_buckets'].default}")


def test_each_alert_fires_on_its_state_and_none_on_a_healthy_installation(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        missing("promtool is not installed (Debian: apt install prometheus)")
    assert set(STATES) == {rule["alert"] for rule in alert_rules()}
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump({"groups": groups()}))
    scenes = [scene({}, []), *(scene(state, [alert]) for alert, state in STATES.items())]
    # Without a single archiver the sum of their leases is no series at all.
    scenes.append(scene({name: "_x80" for name in HEALTHY if "leases_held" in name}, ["QimInstanceNotArchived"]))
    document = {"rule_files": ["alerts.yaml"], "evaluation_interval": "15s", "tests": scenes}
    (tmp_path / "scenes.yaml").write_text(yaml.safe_dump(document))
    command = [promtool, "test", "rules", "scenes.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def scene(state: dict[str, str], firing: list[str]) -> dict[str, Any]:
    """One test of promtool: a healthy installation but for `state`, and which alerts fire at its end."""
    series = {in_namespace(name): values for name, values in (HEALTHY | state).items()}
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing]
    return {
        "interval": "15s",
        "name": " ".join(firing) or "healthy",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "20m",
                "exp_samples": expected,
            }
        ],
    }


def in_namespace(series: str) -> str:
    """The series with the label that Prometheus adds."""
    name, brace, labels = series.partition("{")
    return f'{name}{{namespace="qim",{labels}' if brace else f'{name}{{namespace="qim"}}'
