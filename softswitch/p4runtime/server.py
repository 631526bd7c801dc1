"""The gRPC service: checks of a request as a whole, locking, and the way of errors to the client."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures

import grpc
from google.protobuf.message import Message

from ..core import SwitchCore
from ..core_library import SwitchError
from .arbitration import MAX_STREAMS, Arbitration
from .errors import (
    STATUS_DETAILS,
    BatchError,
    P4RuntimeError,
    failed_precondition,
    internal,
    invalid_argument,
    not_found,
    permission_denied,
    unavailable,
    unimplemented,
)
from .forwarding import Compile, Forwarding, VerifiedConfig, verify
from .protos import p4r, p4r_grpc
from .stream import Stream

log = logging.getLogger(__name__)

API_VERSION = "1.4.1"
MAX_MESSAGE_BYTES = 64 << 20
"""A device config of a large program is several megabytes of JSON."""
ENTITIES_PER_RESPONSE = 256
PACKET_IN_POLL_SECONDS = 0.5

SetConfig = p4r.SetForwardingPipelineConfigRequest
GetConfig = p4r.GetForwardingPipelineConfigRequest

NO_PIPELINE = "No forwarding pipeline config set for this device"


class P4RuntimeServer(p4r_grpc.P4RuntimeServicer):
    """Serves one device.

    Args:
        core: the switch that runs the programs; started and closed by the caller, closed after
            :meth:`stop`.
        device_id: as controllers must name it; 0 is legal.
        compile_program: turns a checked program into a shared object.
    """

    def __init__(self, core: SwitchCore, device_id: int, compile_program: Compile):
        self._core = core
        self._device_id = device_id
        self._compile = compile_program
        self._lock = threading.RLock()
        """Guards everything below; held through a whole Write or Read, so that neither sees half of
        another Write."""
        self._config_lock = threading.Lock()
        """Held through SetForwardingPipelineConfig, compilation included; taken before _lock."""
        self._arbitration = Arbitration(device_id)
        self._saved: Forwarding | None = None
        """Verified and saved, not committed: reads and writes go there, frames do not."""
        self._running: Forwarding | None = None
        self._streams: set[Stream] = set()
        self._stopping = threading.Event()
        self._closed = False
        """Requests that outlive stop() must not reach the core any more."""
        self._grpc: grpc.Server | None = None
        self._executor: futures.Executor | None = None
        self._packet_in_thread: threading.Thread | None = None

    # --- Life -----------------------------------------------------------------------------------

    def serve(self, address: str) -> str:
        """Binds and starts serving; returns the bound address (port 0: the system picks one).

        Raises:
            SwitchError: the address cannot be bound.
        """
        executor = futures.ThreadPoolExecutor(2 * MAX_STREAMS, thread_name_prefix="p4runtime")
        server = grpc.server(
            executor,
            options=[
                ("grpc.so_reuseport", 0),  # or a second switch would silently share the port
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ],
        )
        p4r_grpc.add_P4RuntimeServicer_to_server(self, server)
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise SwitchError(
                f"cannot serve P4Runtime at {address}: the address is in use or not of this machine; "
                "choose another with --grpc-server-addr"
            ) from error
        server.start()
        self._grpc, self._executor = server, executor
        if self._core.cpu_port is not None:
            self._packet_in_thread = threading.Thread(target=self._forward_packet_ins, name="packet-in")
            self._packet_in_thread.start()
        host, colon, _ = address.rpartition(":")
        return address if address.startswith("unix") or not colon else f"{host}:{port}"

    def stop(self, grace: float = 0.5) -> None:
        """Stops serving, and the core; RPCs under way get ``grace`` seconds.  Idempotent.

        A compilation under way goes on in its thread, and its result is not used.
        """
        self._stopping.set()
        for stream in list(self._streams):
            stream.end()
        if self._grpc is not None:
            self._grpc.stop(grace).wait()
            self._grpc = None
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None
        if self._core.alive:
            self._core.stop()
        if self._packet_in_thread is not None:
            self._packet_in_thread.join()
            self._packet_in_thread = None
        with self._lock:
            self._closed = True
            self._running = self._saved = None

    def load(self, config: p4r.ForwardingPipelineConfig) -> None:
        """Runs a config that did not come from a controller.  Raises P4RuntimeError."""
        with self._config_lock:
            verified = verify(config, self._compile)
            with self._lock:
                self._commit(self._instantiate(verified))

    # --- Capabilities, pipeline config ----------------------------------------------------------

    def Capabilities(self, request, context):
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def SetForwardingPipelineConfig(self, request: SetConfig, context):
        return _answer(context, self._set_config, request)

    def GetForwardingPipelineConfig(self, request: GetConfig, context):
        return _answer(context, self._get_config, request)

    def _set_config(self, request: SetConfig) -> Message:
        with self._lock:
            self._check_device(request.device_id)
            self._arbitration.require_primary(request)
        actions = {
            SetConfig.VERIFY: self._verify_only,
            SetConfig.VERIFY_AND_SAVE: self._verify_and_save,
            SetConfig.VERIFY_AND_COMMIT: self._verify_and_commit,
            SetConfig.COMMIT: self._commit_saved,
            SetConfig.RECONCILE_AND_COMMIT: self._reconcile,
        }
        if request.action not in actions:
            raise invalid_argument("the action is none of the defined ones")
        with self._config_lock:
            actions[request.action](request)
        return p4r.SetForwardingPipelineConfigResponse()

    def _verified(self, request: SetConfig) -> VerifiedConfig:
        return verify(request.config, self._compile)

    def _verify_only(self, request: SetConfig) -> None:
        self._verified(request)

    def _verify_and_save(self, request: SetConfig) -> None:
        verified = self._verified(request)
        with self._lock:
            self._arbitration.require_primary(request)  # it may have changed while we compiled
            forwarding = self._instantiate(verified)
            if self._saved is not None:
                self._saved.unload()
            self._saved = forwarding

    def _verify_and_commit(self, request: SetConfig) -> None:
        verified = self._verified(request)
        with self._lock:
            self._arbitration.require_primary(request)
            self._commit(self._instantiate(verified))

    def _commit_saved(self, request: SetConfig) -> None:
        if request.HasField("config"):
            raise invalid_argument("COMMIT takes no config: it commits the one that was saved")
        with self._lock:
            if self._saved is None:
                raise not_found("there is no saved config: VERIFY_AND_SAVE comes first")
            saved, self._saved = self._saved, None
            self._commit(saved)

    def _reconcile(self, request: SetConfig) -> None:
        if not request.HasField("config"):
            raise invalid_argument("RECONCILE_AND_COMMIT needs a config")
        with self._lock:
            running = self._running
            if running is None or not _same_program(running.config, request.config):
                raise unimplemented(
                    "the embedded switch cannot carry its state over to another program: "
                    "use VERIFY_AND_COMMIT, which clears it"
                )
            running.config.ClearField("cookie")
            if request.config.HasField("cookie"):
                running.config.cookie.CopyFrom(request.config.cookie)

    def _instantiate(self, verified: VerifiedConfig) -> Forwarding:
        self._check_open()
        return Forwarding(verified, self._core)

    def _commit(self, forwarding: Forwarding) -> None:
        """Frames run through the new pipeline from now on; what was written to the old one is gone."""
        before = [f for f in (self._running, self._saved) if f is not None]
        self._core.attach(forwarding.instance)
        self._running, self._saved = forwarding, None
        for old in before:
            old.unload()

    def _get_config(self, request: GetConfig) -> Message:
        with self._lock:
            self._check_device(request.device_id)
            reply = p4r.GetForwardingPipelineConfigResponse()
            forwarding = self._saved or self._running
            if forwarding is None:
                return reply
            parts = {
                GetConfig.ALL: ("p4info", "p4_device_config"),
                GetConfig.COOKIE_ONLY: (),
                GetConfig.P4INFO_AND_COOKIE: ("p4info",),
                GetConfig.DEVICE_CONFIG_AND_COOKIE: ("p4_device_config",),
            }.get(request.response_type)
            if parts is None:
                raise invalid_argument("the response_type is none of the defined ones")
            reply.config.SetInParent()
            if "p4info" in parts:
                reply.config.p4info.CopyFrom(forwarding.config.p4info)
            if "p4_device_config" in parts:
                reply.config.p4_device_config = forwarding.config.p4_device_config
            if forwarding.config.HasField("cookie"):
                reply.config.cookie.CopyFrom(forwarding.config.cookie)
            return reply

    # --- Write and Read -------------------------------------------------------------------------

    def Write(self, request: p4r.WriteRequest, context):
        return _answer(context, self._write, request)

    def Read(self, request: p4r.ReadRequest, context):
        return _answer_many(context, self._read, request)

    def _write(self, request: p4r.WriteRequest) -> Message:
        with self._lock:
            self._check_device(request.device_id)
            self._arbitration.require_primary(request)
            forwarding = self._pipeline()
            if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
                raise unimplemented("batches are CONTINUE_ON_ERROR only")
            errors = [_attempt(forwarding.write, update) for update in request.updates]
        if any(errors):
            raise BatchError("Write", errors)
        return p4r.WriteResponse()

    def _read(self, request: p4r.ReadRequest) -> tuple[list[p4r.ReadResponse], BatchError | None]:
        """What was found, and what went wrong with the other requests of the batch."""
        responses: list[p4r.ReadResponse] = []
        errors: list[P4RuntimeError | None] = []
        with self._lock:
            self._check_device(request.device_id)
            if request.role:
                raise not_found(f"role '{request.role}': this switch has the default role only")
            forwarding = self._pipeline()
            for wanted in request.entities:
                found: list[p4r.Entity] = []
                error = _attempt(lambda wanted, found=found: found.extend(forwarding.read(wanted)), wanted)
                errors.append(error)
                if error is None:
                    responses.extend(_in_responses(found))
        return responses, BatchError("Read", errors) if any(errors) else None

    def _check_open(self) -> None:
        if self._closed:
            raise unavailable("the switch is stopping")

    def _check_device(self, device_id: int) -> None:
        self._check_open()
        if device_id != self._device_id:
            raise not_found(f"device {device_id} is unknown: this is device {self._device_id}")

    def _pipeline(self) -> Forwarding:
        forwarding = self._saved or self._running
        if forwarding is None:
            raise failed_precondition(NO_PIPELINE)
        return forwarding

    # --- Stream ---------------------------------------------------------------------------------

    def StreamChannel(self, requests, context):
        stream = Stream()
        if not context.add_callback(stream.end):
            return
        with self._lock:
            if len(self._streams) >= MAX_STREAMS:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} streams are open already")
            self._streams.add(stream)
        reader = threading.Thread(target=self._read_stream, args=(stream, requests), daemon=True)
        reader.start()
        failure = None
        try:
            yield from stream.messages()
        except P4RuntimeError as error:
            failure = error
        finally:
            with self._lock:
                self._streams.discard(stream)
                self._arbitration.leave(stream)
        if failure is not None:
            context.abort(failure.grpc_code, failure.message)

    def _read_stream(self, stream: Stream, requests: Iterable[p4r.StreamMessageRequest]) -> None:
        try:
            for request in requests:
                with self._lock:
                    if stream not in self._streams or stream.ended or self._closed:
                        return
                    self._handle(stream, request)
        except P4RuntimeError as error:
            stream.end(error)
        except grpc.RpcError:
            stream.end()  # the client cancelled, or its connection broke
        except Exception as error:
            if self._stopping.is_set():
                stream.end()
                return
            log.exception("a stream message failed")
            stream.end(internal(f"{type(error).__name__}: {error}"))
        else:
            stream.end()

    def _handle(self, stream: Stream, request: p4r.StreamMessageRequest) -> None:
        kind = request.WhichOneof("update")
        if kind == "arbitration":
            self._arbitration.update(stream, request.arbitration)
            return
        try:
            if kind == "packet":
                self._packet_out(stream, request.packet)
            elif kind is None:
                raise invalid_argument("the stream message is empty")
            else:
                raise unimplemented(f"the embedded switch has no use for {kind}")
        except (P4RuntimeError, SwitchError) as error:
            refused = error if isinstance(error, P4RuntimeError) else failed_precondition(str(error))
            reply = p4r.StreamError(canonical_code=refused.code, message=refused.message)
            if kind == "packet":
                reply.packet_out.packet_out.CopyFrom(request.packet)
            elif kind == "digest_ack":
                reply.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
            else:
                reply.other.SetInParent()
            stream.offer(p4r.StreamMessageResponse(error=reply))

    def _packet_out(self, stream: Stream, message: p4r.PacketOut) -> None:
        if self._arbitration.primary is not stream:
            raise permission_denied("only the primary may send packets")
        if self._running is None:
            raise failed_precondition(NO_PIPELINE)
        self._core.packet_out(self._running.packet_out(message))

    def _forward_packet_ins(self) -> None:
        """Runs until the core stops: frames to the CPU port go to the primary."""
        while not self._stopping.is_set():
            try:
                frame = self._core.packet_in(PACKET_IN_POLL_SECONDS)
            except SwitchError:
                return
            if frame is None:
                continue
            with self._lock:
                primary = self._arbitration.primary
                if primary is None or self._running is None:
                    continue
                message = self._running.packet_in(frame)
                if message is None:
                    log.warning("dropped a packet-in shorter than its controller header")
                    continue
                assert isinstance(primary, Stream)
                primary.offer(p4r.StreamMessageResponse(packet=message))


def _same_program(one: p4r.ForwardingPipelineConfig, other: p4r.ForwardingPipelineConfig) -> bool:
    return one.p4_device_config == other.p4_device_config and one.p4info == other.p4info


def _attempt(operation: Callable, argument: Message) -> P4RuntimeError | None:
    """Runs one entity of a batch; an unforeseen failure is that entity's INTERNAL error."""
    try:
        operation(argument)
    except P4RuntimeError as error:
        return error
    except Exception as error:
        log.exception("an entity of a batch failed")
        return internal(f"{type(error).__name__}: {error}")
    return None


def _in_responses(entities: list[p4r.Entity]) -> Iterator[p4r.ReadResponse]:
    for first in range(0, len(entities), ENTITIES_PER_RESPONSE):
        yield p4r.ReadResponse(entities=entities[first : first + ENTITIES_PER_RESPONSE])


def _failure(context: grpc.ServicerContext, error: Exception) -> None:
    """Ends the RPC with the status of an error; never with a traceback."""
    if isinstance(error, BatchError):
        context.set_trailing_metadata(((STATUS_DETAILS, error.status().SerializeToString()),))
        context.abort(grpc.StatusCode.UNKNOWN, str(error))
    if isinstance(error, P4RuntimeError):
        context.abort(error.grpc_code, error.message)
    log.error("a request failed", exc_info=error)
    context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")


def _answer(context: grpc.ServicerContext, handler: Callable, request: Message) -> Message:
    try:
        return handler(request)
    except Exception as error:
        failure = error
    _failure(context, failure)
    raise AssertionError("abort raises")


def _answer_many(context: grpc.ServicerContext, handler: Callable, request: Message) -> Iterator[Message]:
    failure: Exception | None
    try:
        responses, failure = handler(request)
    except Exception as error:
        responses, failure = [], error
    yield from responses
    if failure is not None:
        _failure(context, failure)
