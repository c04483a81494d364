"""Every metric of qim: the one list of names.

Names end in their unit (`_seconds`, `_bytes`) or in `_total` for counters. Labels are bounded: methods of the role
table, gRPC codes, reasons of `Reason`; never a tenant, a person, a conversation or anything that a caller wrote.
A service makes only its own group, so that no process shows a zero for something that it does not do.
"""

from functools import cache
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

_CALL_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_COMMIT_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 1.0)
_LAG_BUCKETS: Final = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 600.0)
_BATCH_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256)


class RpcMetrics:
    """What every gRPC server counts; written by the interceptor."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        # Finished calls. `reason` is the ErrorInfo's, empty for OK and for transport failures.
        self._requests = Counter(
            "qim_rpc_requests_total", "Finished calls", ("method", "code", "reason"), registry=registry
        )
        # From the handler's start to its end; for streams their whole life.
        self._seconds = Histogram(
            "qim_rpc_seconds", "Time a call took", ("method",), buckets=_CALL_BUCKETS, registry=registry
        )
        # Calls being served.
        self.in_flight = Gauge("qim_rpc_in_flight", "Calls being served", registry=registry)
        # `labels()` costs more than the count itself, so the children are kept.
        self._request_children: dict[tuple[str, str, str], Counter] = {}
        self._second_children: dict[str, Histogram] = {}

    def observe(self, method: str, code: str, reason: str, seconds: float) -> None:
        """One finished call."""
        key = (method, code, reason)
        counter = self._request_children.get(key)
        if counter is None:
            counter = self._request_children[key] = self._requests.labels(*key)
        counter.inc()
        histogram = self._second_children.get(method)
        if histogram is None:
            histogram = self._second_children[method] = self._seconds.labels(method)
        histogram.observe(seconds)


class ReloadMetrics:
    """Files that are read again without a restart: certificates, bindings, token keys."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        # `what`: bindings, token_keys, server_certificate, client_certificate; `outcome`: ok, failed.
        self._reloads = Counter(
            "qim_reloads_total", "Files read again after a change", ("what", "outcome"), registry=registry
        )

    def count(self, what: str, *, ok: bool) -> None:
        """One changed file that was taken, or not."""
        self._reloads.labels(what, "ok" if ok else "failed").inc()


class TaskMetrics:
    """Work that outlives the call that started it."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        # Shielded work whose caller had gone when it failed: nobody but the log heard of it.
        self.orphaned_failures = Counter(
            "qim_orphaned_task_failures_total", "Work that failed after its caller had gone", registry=registry
        )


class WriterMetrics:
    """The writer: membership and commits (ADR, "metrics"; storage.md, "Speed")."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        # Committed membership events. `op`: join, leave, remove.
        self.membership_events = Counter(
            "qim_writer_membership_events_total", "Committed membership events", ("op",), registry=registry
        )
        # Re-plans because another replica changed the membership first; at most three a change.
        self.membership_retries = Counter(
            "qim_writer_membership_retry_total", "Membership changes planned again", registry=registry
        )
        # Messages whose commit the store confirmed, control messages included.
        self.messages_committed = Counter(
            "qim_writer_messages_committed_total", "Messages committed", registry=registry
        )
        # Sends in one script call, 1 to 256.
        self.commit_batch_size = Histogram(
            "qim_writer_commit_batch_size", "Sends in one script call", buckets=_BATCH_BUCKETS, registry=registry
        )
        # From the script call to its answer, the fsync included.
        self.commit_seconds = Histogram(
            "qim_writer_commit_seconds", "Time of one commit call", buckets=_COMMIT_BUCKETS, registry=registry
        )
        # Sends that wait for a commit call.
        self.commit_waiting = Gauge("qim_writer_commit_waiting", "Sends waiting for a commit call", registry=registry)
        # Runs that the session service took from the low-latency lane.
        self.hints_sent = Counter("qim_writer_hints_sent_total", "Runs of the lane taken", registry=registry)
        # Runs that it did not get: no room, or the call failed. The durable lane brings them.
        self.hints_dropped = Counter(
            "qim_writer_hints_dropped_total", "Runs of the low-latency lane left to the durable one", registry=registry
        )
        # 1 while an instance (its position) has fewer replicas than QIM_REPLICAS that confirm in time.
        self.replicas_missing = Gauge(
            "qim_writer_replicas_missing", "Whether replicas are missing", ("instance",), registry=registry
        )
        # Sends and changes that are recorded and not answered before the archive holds them (ack level archived).
        self.archive_waiting = Gauge("qim_writer_archive_waiting", "Commits waiting for the archive", registry=registry)
        # What each instance (its position) has recorded and the archive does not hold yet, as last looked up.
        self.outbox_messages = Gauge(
            "qim_writer_outbox_messages",
            "Messages and state entries not archived yet",
            ("instance",),
            registry=registry,
        )
        # Sends, creations and joins refused because of it.
        self.outbox_refusals = Counter(
            "qim_writer_outbox_refusals_total", "Requests refused with ARCHIVE_BACKLOG_FULL", registry=registry
        )
        # Records that have left Redis, are above the floor, and were not found in the archive; each read counts again.
        self.archive_missing = Counter(
            "qim_writer_archive_missing_total",
            "Records that the archive should have",
            registry=registry,
        )


class FenceMetrics:
    """What every process that writes to commit instances tells of them."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        # 1: the instance (its position) is fenced, and nothing uses it before `qimctl recover`; 0: it was found good.
        self.instance_fenced = Gauge(
            "qim_instance_fenced", "Whether a commit instance is fenced", ("instance",), registry=registry
        )


class DispatchMetrics:
    """What every consumer of the dispatch logs counts: the projection's, and notifiers'."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        # Reads and batches of the dispatch log that failed and are tried again.
        self.dispatch_failures = Counter(
            "qim_session_dispatch_failures_total", "Reads and batches tried again", registry=registry
        )
        # Partitions whose log had lost entries before they were consumed; the projection's epoch rises with it.
        self.dispatch_gaps = Counter(
            "qim_session_dispatch_gaps_total", "Partitions with lost dispatch entries", registry=registry
        )
        # Batches that another consumer of the partition had applied already.
        self.checkpoint_conflicts = Counter(
            "qim_session_checkpoint_conflicts_total", "Checkpoints moved by another consumer", registry=registry
        )
        # How far the slowest held partition of a commit instance (its position) is behind the instance's time.
        self.dispatch_lag = Gauge(
            "qim_session_dispatch_lag_seconds",
            "Lag of the slowest partition held here",
            ("instance",),
            registry=registry,
        )
        # Partitions whose lease this replica holds; over all replicas their number.
        self.partitions_held = Gauge("qim_session_partitions_held", "Partitions held here", registry=registry)
        # Partitions that came to this replica, and that left it for whatever reason.
        self.lease_takeovers = Counter("qim_session_lease_takeovers_total", "Partitions taken over", registry=registry)
        self.lease_losses = Counter(
            "qim_session_lease_losses_total", "Partitions given away or lost", registry=registry
        )
        # Heartbeats of this replica that failed; after the lease's life it holds nothing.
        self.lease_failures = Counter("qim_session_lease_failures_total", "Renewals that failed", registry=registry)
        # Held partitions that are not consumed because their checkpoint does not belong to their log.
        self.partitions_refused = Counter(
            "qim_session_partitions_refused_total",
            "Partitions found with a checkpoint of another log",
            registry=registry,
        )
        # Messages that were left out because nobody knows the members at their version any more.
        self.audiences_unresolved = Counter(
            "qim_session_audiences_unresolved_total", "Messages whose audience is gone", registry=registry
        )


class SessionMetrics(DispatchMetrics):
    """The session service: projection and conversation sets (ADR, "metrics")."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__(registry)
        # A member whose stay could not be found while deriving; stays zero, or an invariant is broken.
        self.group_interval_missing = Counter(
            "qim_session_group_interval_missing_total", "Stays that should have been there", registry=registry
        )
        # People whose list was built again from the authority, because their epoch mark was old.
        self.users_rebuilt = Counter(
            "qim_session_projection_user_rebuilt_total", "Lists built again from the authority", registry=registry
        )
        # Conversation states waiting for the registrar. A gauge for all its `_total`: the ADR names it so.
        self.conversation_state_pending = Gauge(
            "qim_session_conversation_state_pending_total", "Conversation states to be registered", registry=registry
        )
        # Conversation states written to the authority.
        self.conversation_state_written = Counter(
            "qim_session_conversation_state_written_total", "Conversation states registered", registry=registry
        )
        # Batches of conversation states that could not be written; they stay pending.
        self.conversation_state_failures = Counter(
            "qim_session_conversation_state_failures_total", "Registrations that failed", registry=registry
        )
        # Entries of `project_entries`, both lanes.
        self.projected_entries = Counter("qim_session_projected_entries_total", "Entries projected", registry=registry)
        # Rows of the membership log that were registered.
        self.memlog_registered = Counter(
            "qim_session_memlog_registered_total", "Members registered from the membership log", registry=registry
        )
        # What the writer's low-latency lane brought and was not projected by it: no room, or a store did not answer.
        self.hints_dropped = Counter(
            "qim_session_hints_dropped_total", "Runs of the low-latency lane left to the durable one", registry=registry
        )
        # Backend tiered: cursors and flags of a session instance (its position) that Cassandra does not have yet; on
        # the replica that writes them.
        self.marks_unflushed = Gauge(
            "qim_session_marks_unflushed", "Cursors and flags not written behind yet", ("instance",), registry=registry
        )
        # Cursors and flags that were written behind, and rounds of it that failed and are tried again.
        self.marks_written = Counter(
            "qim_session_marks_written_total", "Cursors and flags written behind", registry=registry
        )
        self.mark_failures = Counter(
            "qim_session_mark_failures_total", "Rounds of writing behind that failed", registry=registry
        )
        # Devices attached to live streams of this replica.
        self.attachments = Gauge("qim_session_attachments", "Devices on live streams", registry=registry)
        # Delivered messages and entries queued for live streams, counted for each device.
        self.delivered_events = Counter(
            "qim_session_delivered_events_total", "Deliveries queued for live streams", registry=registry
        )
        # Attachments that ended; `reason`: OK, or of the error.
        self.detached = Counter("qim_session_detached_total", "Attachments that ended", ("reason",), registry=registry)
        # How far the slowest partition of a commit instance (its position) is behind it on the way to live streams.
        self.tail_lag = Gauge("qim_session_tail_lag_seconds", "Lag of the live tail", ("instance",), registry=registry)
        # Times that entries of the log were lost to live streams, and everybody connected caught up anew.
        self.tail_gaps = Counter("qim_session_tail_gaps_total", "Gaps of the live tail", registry=registry)
        # Acknowledgements for conversations that the person never was in.
        self.foreign_acknowledgements = Counter(
            "qim_session_foreign_acknowledgements_total", "Acknowledgements ignored", registry=registry
        )


class PushMetrics(DispatchMetrics):
    """A consumer that hands notifications to a push sink (docs/push.md)."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__(registry)
        # Notifications that the sink took; repeats count again.
        self.notifications = Counter("qim_push_notifications_total", "Notifications taken", registry=registry)
        # What was decided for each recipient of each batch; `verdict`: of `qim_session.domain.push.Verdict`.
        self.decisions = Counter("qim_push_decisions_total", "Decisions", ("verdict",), registry=registry)
        # Ordinary messages that nobody was asked about; `why`: expired, big_group, unreadable.
        self.left_out = Counter("qim_push_messages_left_out_total", "Messages left out", ("why",), registry=registry)
        # Dispatch entries that cannot be read; they are passed over.
        self.entries_unreadable = Counter(
            "qim_push_entries_unreadable_total", "Dispatch entries passed over", registry=registry
        )
        # Batches that the sink did not take; they are tried again.
        self.failures = Counter("qim_push_failures_total", "Batches tried again", registry=registry)
        # Notifications that the receiver refused one by one; they are dropped.
        self.refused = Counter("qim_push_refused_total", "Notifications refused and dropped", registry=registry)
        # From handing a batch to the sink until it was taken, or failed.
        self.deliver_seconds = Histogram(
            "qim_push_deliver_seconds", "Time of one batch in the sink", buckets=_CALL_BUCKETS, registry=registry
        )


class ArchiverMetrics:
    """The archiver; `instance` is a commit instance's place in the configured list."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        # Messages and rows of the group log that the archive holds; what was written again counts again.
        self.messages = Counter("qim_archiver_messages_total", "Messages archived", registry=registry)
        self.group_rows = Counter("qim_archiver_group_rows_total", "Rows of the group log archived", registry=registry)
        # From a round's first write until it was noted on the instance.
        self.round_seconds = Histogram(
            "qim_archiver_round_seconds", "Time of one round", buckets=_LAG_BUCKETS, registry=registry
        )
        # How old the oldest entry of a round was when the round was noted.
        self.archived_after_seconds = Histogram(
            "qim_archiver_archived_after_seconds", "Commit to archive", buckets=_LAG_BUCKETS, registry=registry
        )
        # Rounds that failed; they are read again and repeated.
        self.failures = Counter("qim_archiver_failures_total", "Rounds tried again", registry=registry)
        # The age of the oldest entry that is not archived; only of instances whose lease this process holds, as the
        # next two.
        self.lag_seconds = Gauge("qim_archiver_lag_seconds", "Lag", ("instance",), registry=registry)
        # Messages and state entries that are recorded and not archived.
        self.backlog_messages = Gauge("qim_archiver_backlog_messages", "Backlog", ("instance",), registry=registry)
        # Buckets that are not archived any more, because their log cannot be read or has lost entries.
        self.buckets_refused = Gauge(
            "qim_archiver_buckets_refused", "Buckets that cannot be archived", ("instance",), registry=registry
        )
        # Instances whose lease this process holds; over all archivers their number.
        self.leases_held = Gauge("qim_archiver_leases_held", "Instances archived here", registry=registry)
        # Records that have left Redis.
        self.evicted = Counter("qim_archiver_evicted_total", "Records evicted", registry=registry)


class CassandraMetrics:
    """Requests to Cassandra; `statement` is one of the program's own names."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        # Finished requests. `outcome`: ok, or the driver's class of error.
        self._requests = Counter(
            "qim_cassandra_requests_total", "Finished requests", ("statement", "outcome"), registry=registry
        )
        # From the request to its answer, without the wait for a free place.
        self._seconds = Histogram(
            "qim_cassandra_seconds", "Time a request took", ("statement",), buckets=_CALL_BUCKETS, registry=registry
        )
        # Requests that wait for an answer; bounded by QIM_CASSANDRA_MAX_IN_FLIGHT.
        self.in_flight = Gauge("qim_cassandra_in_flight", "Requests being answered", registry=registry)
        # 1 from the first connection on; nodes that go down later are seen in the outcomes of requests.
        self.connected = Gauge("qim_cassandra_connected", "Whether a session was made", registry=registry)
        self._request_children: dict[tuple[str, str], Counter] = {}
        self._second_children: dict[str, Histogram] = {}

    def observe(self, statement: str, outcome: str, seconds: float) -> None:
        """One finished request."""
        key = (statement, outcome)
        counter = self._request_children.get(key)
        if counter is None:
            counter = self._request_children[key] = self._requests.labels(*key)
        counter.inc()
        histogram = self._second_children.get(statement)
        if histogram is None:
            histogram = self._second_children[statement] = self._seconds.labels(statement)
        histogram.observe(seconds)


@cache
def archiver_metrics() -> ArchiverMetrics:
    """The archiver's metrics."""
    return ArchiverMetrics()


@cache
def cassandra_metrics() -> CassandraMetrics:
    """The process's metrics of Cassandra."""
    return CassandraMetrics()


@cache
def rpc_metrics() -> RpcMetrics:
    """The process's RPC metrics."""
    return RpcMetrics()


@cache
def reload_metrics() -> ReloadMetrics:
    """The process's reload metrics."""
    return ReloadMetrics()


@cache
def task_metrics() -> TaskMetrics:
    """The process's metrics of work that outlives its call."""
    return TaskMetrics()


@cache
def writer_metrics() -> WriterMetrics:
    """The writer's metrics."""
    return WriterMetrics()


@cache
def fence_metrics() -> FenceMetrics:
    """The process's metrics of the fence."""
    return FenceMetrics()


@cache
def session_metrics() -> SessionMetrics:
    """The session service's metrics."""
    return SessionMetrics()


@cache
def push_metrics() -> PushMetrics:
    """The metrics of a push consumer."""
    return PushMetrics()
