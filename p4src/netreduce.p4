// NetReduce: sums the gradient packets of distributed training while they cross the switch.
//
// The protocol is described in docs/protocol.md, the tables in docs/architecture.md. Target: v1model.
#include <core.p4>
#include <v1model.p4>

#include "include/headers.p4"
#include "include/parser.p4"
#include "include/connection.p4"
#include "include/aggregation.p4"
#include "include/forwarding.p4"
#include "include/rewrite.p4"
#include "include/checksum.p4"
#include "include/deparser.p4"

control NetreduceIngress(inout headers_t hdr,
                         inout metadata_t meta,
                         inout standard_metadata_t standard_metadata) {
    Connection() connection;
    Aggregation() aggregation;
    Forwarding() forwarding;

    // What became of every packet to a NetReduce port: exactly one cell each, stream * 16 + cause.
    counter(CAUSE_CELLS, CounterType.packets_and_bytes) causes;

    apply {
        if (meta.disposition == disposition_t.AGGREGATE) {
            connection.apply(hdr, meta, standard_metadata);
        }
        if (meta.disposition == disposition_t.AGGREGATE) {
            aggregation.apply(hdr, meta, standard_metadata);
        } else if (meta.disposition == disposition_t.FORWARD) {
            forwarding.apply(hdr, meta, standard_metadata);
        }
        if (meta.disposition == disposition_t.DROP) {
            mark_to_drop(standard_metadata);
        }
        if (meta.counted == 1) {
            causes.count((bit<32>)(meta.stream[7:0] ++ meta.cause));
        }
    }
}

control NetreduceEgress(inout headers_t hdr,
                        inout metadata_t meta,
                        inout standard_metadata_t standard_metadata) {
    Rewrite() rewrite;

    apply {
        if (meta.disposition == disposition_t.RESULT_TO_ALL
            || meta.disposition == disposition_t.RESULT_TO_ONE) {
            rewrite.apply(hdr, meta, standard_metadata);
        } else if (meta.disposition == disposition_t.FLOOD
                   && standard_metadata.egress_port == standard_metadata.ingress_port) {
            mark_to_drop(standard_metadata);
        }
    }
}

@pkginfo(name="netreduce", version="0.1.0")
V1Switch(NetreduceParser(),
         NetreduceVerifyChecksum(),
         NetreduceIngress(),
         NetreduceEgress(),
         NetreduceComputeChecksum(),
         NetreduceDeparser()) main;
