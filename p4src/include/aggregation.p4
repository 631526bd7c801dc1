// Runs a contribution through its slot and turns the completing one into the result.
#ifndef NETREDUCE_AGGREGATION_P4
#define NETREDUCE_AGGREGATION_P4

#include "block_aggregator.p4"
#include "headers.p4"
#include "slots.p4"

control Aggregation(inout headers_t hdr,
                    inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    Slots() slots;
#define BLOCK(N) BlockAggregator(N) block_##N
    BLOCK(0);
    BLOCK(1);
    BLOCK(2);
    BLOCK(3);
    BLOCK(4);
    BLOCK(5);
    BLOCK(6);
    BLOCK(7);
    BLOCK(8);
    BLOCK(9);
    BLOCK(10);
    BLOCK(11);
    BLOCK(12);
    BLOCK(13);
    BLOCK(14);
    BLOCK(15);
#undef BLOCK

    @hidden action become_result() {
        hdr.nr.kind = KIND_RESULT;
        hdr.nr.contributors = meta.ranks;
    }

    @hidden action to_all() {
        become_result();
        meta.disposition = disposition_t.RESULT_TO_ALL;
        standard_metadata.mcast_grp = meta.group;
    }

    @hidden action to_sender() {
        become_result();
        meta.disposition = disposition_t.RESULT_TO_ONE;
        standard_metadata.egress_spec = meta.port;
    }

    @hidden action absorb() {
        meta.disposition = disposition_t.DROP;
    }

    apply {
        slots.apply(hdr.nr, meta);
        if (meta.step != step_t.NONE) {
#define BLOCK(N) block_##N.apply(hdr.blocks[N], hdr.nr.op, meta)
            BLOCK(0);
            BLOCK(1);
            BLOCK(2);
            BLOCK(3);
            BLOCK(4);
            BLOCK(5);
            BLOCK(6);
            BLOCK(7);
            BLOCK(8);
            BLOCK(9);
            BLOCK(10);
            BLOCK(11);
            BLOCK(12);
            BLOCK(13);
            BLOCK(14);
            BLOCK(15);
#undef BLOCK
        }
        // Congestion marks of the contributions would be merged into the result's TOS here.
        if (meta.cause == CAUSE_COMPLETED) {
            to_all();
        } else if (meta.step == step_t.ANSWER) {
            to_sender();
        } else {
            absorb();
        }
    }
}

#endif
