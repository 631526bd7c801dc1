// One block of every slot: 256 bytes that are combined as a whole.
#ifndef NETREDUCE_BLOCK_AGGREGATOR_P4
#define NETREDUCE_BLOCK_AGGREGATOR_P4

#include "headers.p4"

control BlockAggregator(inout block_t block, in bit<8> op, inout metadata_t meta)(bit<5> index) {
    register<block_data_t>(SLOT_COUNT) blocks;

    // A first contribution is stored, so that no slot ever needs clearing; so is a block that no earlier
    // contribution to this k had.
    @hidden action store() {
        blocks.write(meta.slot, block.data);
    }

    // Adds all lanes at once: their top bits are left out of the addition, so that no carry crosses into
    // the next lane, and are added without carry by the exclusive or.
    @hidden action add() {
        blocks.read(meta.stored, meta.slot);
        block.data = ((meta.stored & meta.lane_rest) + (block.data & meta.lane_rest))
                     ^ ((meta.stored ^ block.data) & meta.lane_top);
        blocks.write(meta.slot, block.data);
    }

    @hidden action merge() {
        blocks.read(meta.stored, meta.slot);
        block.data = meta.stored | block.data;
        blocks.write(meta.slot, block.data);
    }

    @hidden action answer() {
        blocks.read(block.data, meta.slot);
    }

    apply {
        if (block.isValid()) {
            if (meta.slot_blocks <= index) {
                // The slot has no such block: what an earlier k left there must neither be added to nor seen.
                if (meta.step == step_t.COMBINE) {
                    store();
                }
            } else if (meta.step == step_t.ANSWER) {
                answer();
            } else if (op == OP_SUM) {
                add();
            } else {
                merge();
            }
        }
    }
}

#endif
