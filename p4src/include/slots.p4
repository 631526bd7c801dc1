// The slot protocol: what a contribution means to the slot that its stream index selects.
//
// A slot is never cleared. The tag says whose state it holds, and a first contribution overwrites it; that
// this loses nothing follows from the hosts' rule of credit (docs/protocol.md, "Invariant").
#ifndef NETREDUCE_SLOTS_P4
#define NETREDUCE_SLOTS_P4

#include "headers.p4"

control Slots(in nr_t nr, inout metadata_t meta) {
    // generation ++ k of the packets that are being combined.
    register<bit<64>>(SLOT_COUNT) slot_tag;
    // The ranks that have contributed.
    register<rank_set_t>(SLOT_COUNT) slot_seen;
    // How many blocks hold data of this tag; the others still hold an earlier one's.
    register<bit<5>>(SLOT_COUNT) slot_blocks;
    // Whether the blocks are the final result. Not the same as `seen` being full: in a tree the leaf has
    // seen all its ranks long before the root's result arrives.
    register<bit<1>>(SLOT_COUNT) slot_done;

    bit<64> tag;
    rank_set_t seen;
    bit<1> done;
    bit<1> same_generation;
    bit<32> age;
    bit<1> contributed;

    @hidden action first() {
        meta.step = step_t.COMBINE;
        meta.cause = CAUSE_FIRST;
        meta.slot_blocks = 0;
        seen = meta.rank_bit;
    }

    @hidden action add() {
        meta.step = step_t.COMBINE;
        meta.cause = CAUSE_ADDED;
        seen = seen | meta.rank_bit;
    }

    @hidden action absorb_duplicate() {
        meta.cause = CAUSE_DUPLICATE_ABSORBED;
    }

    @hidden action answer_duplicate() {
        meta.step = step_t.ANSWER;
        meta.cause = CAUSE_DUPLICATE_ANSWERED;
    }

    @hidden action stale() {
        meta.cause = CAUSE_STALE;
    }

    // First contribution, further one, duplicate or stale packet? `age` is the packet's k minus the slot's
    // in serial number arithmetic (RFC 1982): its top bit set means that the slot is ahead. It takes k as
    // 32 bits; a transport that counts in 24 (RoCE's PSN) fits in if k is shifted left by 8 first.
    @hidden
    table decide {
        key = {
            same_generation: ternary;
            age: ternary;
            contributed: ternary;
            done: ternary;
        }
        actions = {
            first;
            add;
            absorb_duplicate;
            answer_duplicate;
            stale;
        }
        const default_action = stale();
        const entries = {
            // The slot holds nothing, or what an earlier user of it left.
            (0, _, _, _): first();
            // The slot's own k.
            (1, 0, _, 1): answer_duplicate();
            (1, 0, 1, 0): absorb_duplicate();
            (1, 0, 0, 0): add();
            // The slot is ahead.
            (1, 0x80000000 &&& 0x80000000, _, _): stale();
            // The slot is behind.
            (1, _, _, _): first();
        }
    }

    apply {
        slot_tag.read(tag, meta.slot);
        slot_seen.read(seen, meta.slot);
        slot_blocks.read(meta.slot_blocks, meta.slot);
        slot_done.read(done, meta.slot);
        same_generation = (bit<1>)(tag[63:32] == meta.generation);
        age = nr.k - tag[31:0];
        contributed = (bit<1>)(seen & meta.rank_bit != 0);

        decide.apply();

        if (meta.step == step_t.COMBINE) {
            slot_tag.write(meta.slot, meta.generation ++ nr.k);
            slot_seen.write(meta.slot, seen);
            if (meta.blocks > meta.slot_blocks) {
                slot_blocks.write(meta.slot, meta.blocks);
            }
            if (seen == meta.full) {
                meta.cause = CAUSE_COMPLETED;
            }
            slot_done.write(meta.slot, (bit<1>)(seen == meta.full));
        }
    }
}

#endif
