// The IPv4 header checksum of rewritten packets; whatever is only forwarded stays as it came.
#ifndef NETREDUCE_CHECKSUM_P4
#define NETREDUCE_CHECKSUM_P4

#include "headers.p4"

control NetreduceVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control NetreduceComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.rewritten == 1,
            {
                hdr.ipv4.version,
                hdr.ipv4.ihl,
                hdr.ipv4.tos,
                hdr.ipv4.total_length,
                hdr.ipv4.identification,
                hdr.ipv4.reserved,
                hdr.ipv4.do_not_fragment,
                hdr.ipv4.more_fragments,
                hdr.ipv4.fragment_offset,
                hdr.ipv4.ttl,
                hdr.ipv4.protocol,
                hdr.ipv4.source,
                hdr.ipv4.destination
            },
            hdr.ipv4.checksum,
            HashAlgorithm.csum16);
    }
}

#endif
