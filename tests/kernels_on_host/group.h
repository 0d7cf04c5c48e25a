/* SPDX-License-Identifier: Apache-2.0 */
/** A group of ranks in the harness: workspaces, calls with their buffers, what each must give, and the state they must
 * leave. */
#ifndef TPC_KERNELS_ON_HOST_GROUP_H
#define TPC_KERNELS_ON_HOST_GROUP_H

#include <string>
#include <vector>

#include "custom_ar/ar_abi.h"
#include "custom_ar/launch.h"
#include "hostrun.h"

/** A call as a user makes it. */
struct call_t {
    tpcomm_coll_t coll;
    tpcomm_dtype_t dtype;
    tpcomm_op_t op;
    int root;
    size_t count; /**< of reduce_scatter and all_gather: of a rank's part */
    bool twoshot, ring = false;
};
std::string describe(const call_t &call);

enum payload_t {
    RANDOM_BITS,
    HOSTILE /**< EMPTY words and halves of them, epochs, NaNs, -0, subnormals */
};

/** One rank's part of one call. */
struct part_t {
    bool made; /**< launched at all */
    unsigned char *in, *out;
    size_t in_bytes, part_bytes, in_stride, out_stride, out_parts, out_shift;
    std::vector<unsigned char> in_before, out_before;
    std::vector<unsigned char> expected; /**< parts one after the other */
};

class group_t {
  public:
    /** In a scenario that has begun. A ring's count of chunks begins as its memory does: just before its wrap. */
    group_t(int size, size_t slot_bytes, uint32_t first_epoch, hostrun::random_t &random, tpc_ar_ring_t ring = {0, 0});

    /** Any call that fits a slot, or of any length through a ring; reductions have defined results. */
    call_t draw_call();
    call_t draw_ring_call();
    tpc_ar_shape_t draw_shape();
    tpc_ar_shape_t draw_ring_shape();

    /** All ranks make this call; buffers of any alignment, in place or not, drawn. */
    void make(const call_t &call, payload_t payload = RANDOM_BITS);
    /** Each rank makes a call of its own (a mistake), or none where its count is SIZE_MAX. */
    void make_each(const std::vector<call_t> &calls, payload_t payload = RANDOM_BITS);

    /** Results of calls [first, end), every byte, and bytes beside them; inputs that were to stay. "" if right. */
    std::string check_results(size_t first, size_t end) const;
    /** Calls [first, end) that this rank made gave what a broken group gives: NaN or 0, or nothing at all. */
    std::string check_given_up(int rank, size_t first, size_t end) const;
    /** All slots EMPTY, all epochs of all ranks as many calls on, no failure anywhere. */
    std::string check_rest() const;
    /** All epochs of this rank, so many calls on. */
    std::string check_epochs(int rank, size_t calls) const;

    /** For calls that a test launches itself: what every launch of a rank has; and that all ranks have made one. */
    tpc_ar_params_t base_params(int rank) const;
    void note_call();

    size_t calls() const { return made.size(); }
    uint32_t epoch_of(size_t call) const;
    /** A rank's kernels note their waits from now on; blocks of all ranks are whole warps, as they are on a GPU. */
    void note_waits(int rank) { header(rank)->notes_waits = 1, whole_warps = true; }
    const tpc_ar_waits_t *waits(int rank) const {
        return (const tpc_ar_waits_t *)(workspace[(size_t)rank] + TPC_AR_WAITS_OFFSET);
    }
    tpc_ar_header_t *header(int rank) const { return (tpc_ar_header_t *)workspace[(size_t)rank]; }
    /** Negated status in the rank's failure word; 0: healthy. */
    uint32_t failure(int rank) const { return (uint32_t)header(rank)->fail; }

    const int size;
    const bool early; /**< launches may be dependent ones */
    std::vector<tpc_ar_report_t *> report;
    std::vector<uint64_t *> host_fail, host_pulse; /**< a pulse that is 0 does not count */

  private:
    part_t make_part(int rank, const call_t &call, payload_t payload, bool aligned);
    void launch(int rank, const call_t &call, part_t &part, tpc_ar_shape_t shape);
    void expect(const call_t &call, std::vector<part_t> &parts);
    void fill(unsigned char *at, size_t bytes, payload_t payload);
    std::string check_ring() const;
    std::string check_part(size_t call, int rank, const std::vector<unsigned char> &want) const;

    const size_t slot_bytes;
    const tpc_ar_ring_t ring;
    const uint32_t first_epoch;
    bool whole_warps = false;
    hostrun::random_t &random;
    std::vector<unsigned char *> workspace;
    std::vector<call_t> made;
    std::vector<std::vector<part_t>> parts; /**< [call][rank] */
};

#endif
