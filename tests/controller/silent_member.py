"""Attends a job as a worker does: ``python silent_member.py CONTROLLER TICKET``; says "attending".

Then, at each line on standard input, holds the interpreter's lock for the number of seconds in it, as long
calls into C libraries do, and says "back".
"""

import ctypes
import queue
import sys

import grpc

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.api import job_service_pb2_grpc as pb_grpc

reports: "queue.SimpleQueue[pb.MemberReport | None]" = queue.SimpleQueue()
reports.put(pb.MemberReport(member=sys.argv[2]))
stub = pb_grpc.JobServiceStub(grpc.insecure_channel(sys.argv[1]))
events = stub.Attend(iter(reports.get, None))
print("attending", flush=True)
for line in sys.stdin:
    ctypes.PyDLL(None).usleep(int(float(line) * 1_000_000))
    print("back" if events.is_active() else f"ended: {events.details()}", flush=True)
