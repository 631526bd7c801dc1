// Admission: which stream, rank and slots a contribution belongs to, and whether its sender may say so.
#ifndef NETREDUCE_CONNECTION_P4
#define NETREDUCE_CONNECTION_P4

#include "headers.p4"

control Connection(in headers_t hdr,
                   inout metadata_t meta,
                   in standard_metadata_t standard_metadata) {
    // port, source:  where the rank's packets must come from, and where answers to it go
    // stream:        row of `causes`, first half of the key of `rewrite`
    // generation:    sets apart the users of a slot over time; never 0
    // slot_base, slot_mask:  the stream's slots are base ... base + mask
    // rank_bit, full:  this rank alone, and all ranks, in the seen bitmap
    // ranks:         how many there are, for NR.contributors of a result
    // lane_mask:     the top bit of every lane
    // group:         multicast group that replicates to every rank, with the rank as egress_rid
    action contribute(port_t port,
                      ipv4_address_t source,
                      bit<16> stream,
                      bit<32> generation,
                      bit<16> slot_base,
                      bit<16> slot_mask,
                      rank_set_t rank_bit,
                      rank_set_t full,
                      bit<16> ranks,
                      block_data_t lane_mask,
                      bit<16> group) {
        meta.port = port;
        meta.source = source;
        meta.stream = stream;
        meta.rank = (bit<16>)hdr.nr.rank;
        meta.generation = generation;
        // Confined to the registers whatever the entry says.
        meta.slot = (bit<32>)(slot_base + (hdr.nr.k[15:0] & slot_mask)) & (SLOT_COUNT - 1);
        meta.rank_bit = rank_bit;
        meta.full = full;
        meta.ranks = ranks;
        meta.lane_top = lane_mask;
        meta.lane_rest = ~lane_mask;
        meta.group = group;
    }

    // A contribution of no job of this switch travels on to its destination, whose host then learns that
    // no switch is helping.
    action no_connection() {
        meta.disposition = disposition_t.FORWARD;
        meta.cause = CAUSE_UNKNOWN;
    }

    // Looks a contribution up by its connection.
    table connection {
        key = {
            hdr.nr.job: exact @name("job");
            hdr.nr.rank: exact @name("rank");
        }
        actions = {
            contribute;
            no_connection;
        }
        const default_action = no_connection();
        size = CONNECTION_ENTRIES;
    }

    apply {
        if (connection.apply().hit) {
            if (standard_metadata.ingress_port != meta.port || hdr.ipv4.source != meta.source) {
                meta.disposition = disposition_t.DROP;
                meta.cause = CAUSE_SPOOFED;
            }
        }
    }
}

#endif
