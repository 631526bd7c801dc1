// Makes a result the packet that its receiver expects from its ring predecessor.
#ifndef NETREDUCE_REWRITE_P4
#define NETREDUCE_REWRITE_P4

#include "headers.p4"

control Rewrite(inout headers_t hdr,
                inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    // Results delivered to each rank.
    direct_counter(CounterType.packets_and_bytes) delivered;

    // TTL and TOS stay; the IPv4 checksum follows in the checksum control.
    action as_predecessor(mac_t source_mac,
                          mac_t destination_mac,
                          ipv4_address_t source_ip,
                          ipv4_address_t destination_ip,
                          bit<16> source_port,
                          bit<16> destination_port,
                          bit<8> predecessor) {
        hdr.ethernet.source = source_mac;
        hdr.ethernet.destination = destination_mac;
        hdr.ipv4.source = source_ip;
        hdr.ipv4.destination = destination_ip;
        hdr.udp.source_port = source_port;
        hdr.udp.destination_port = destination_port;
        hdr.udp.checksum = 0;
        hdr.nr.rank = predecessor;
        meta.rewritten = 1;
    }

    action no_receiver() {
        mark_to_drop(standard_metadata);
    }

    // The addresses that the receiving rank of a stream knows its predecessor by. A result for a rank that
    // has no entry goes nowhere.
    table rewrite {
        key = {
            meta.stream: exact @name("stream");
            meta.rank: exact @name("rank");
        }
        actions = {
            as_predecessor;
            no_receiver;
        }
        const default_action = no_receiver();
        counters = delivered;
        size = REWRITE_ENTRIES;
    }

    apply {
        // A replica is named by its instance; an answer is unicast and has none, so ingress named it.
        if (meta.disposition == disposition_t.RESULT_TO_ALL) {
            meta.rank = standard_metadata.egress_rid;
        }
        rewrite.apply();
    }
}

#endif
