// Plain forwarding by MAC address, for everything that is not aggregated.
#ifndef NETREDUCE_FORWARDING_P4
#define NETREDUCE_FORWARDING_P4

#include "headers.p4"

control Forwarding(in headers_t hdr,
                   inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    action to_port(port_t port) {
        standard_metadata.egress_spec = port;
    }

    // The group holds every port; egress takes the ingress port out again.
    action flood(bit<16> group) {
        meta.disposition = disposition_t.FLOOD;
        standard_metadata.mcast_grp = group;
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

    // Which port a station is at. Broadcasts, group addresses and unknown stations meet the default action,
    // which the controller sets to flooding.
    table forward {
        key = {
            hdr.ethernet.destination: exact @name("destination");
        }
        actions = {
            to_port;
            flood;
            drop;
        }
        default_action = drop();
        size = FORWARD_ENTRIES;
    }

    apply {
        forward.apply();
    }
}

#endif
