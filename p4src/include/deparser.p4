// Puts back what the parser took.
#ifndef NETREDUCE_DEPARSER_P4
#define NETREDUCE_DEPARSER_P4

#include "headers.p4"

control NetreduceDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.nr);
        packet.emit(hdr.blocks);
    }
}

#endif
