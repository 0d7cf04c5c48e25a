/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a call takes of a GPU, apart from its time: the kernels' size, how much slower a matrix product beside it gets,
 * and when each rank arrives at a call and how long it waits there: by kernels that look at the GPU's clock right
 * before and behind it, and as the library's kernels themselves note it. In runs of their own, since they change the
 * times.
 */
#ifndef BENCH_PROBE_H
#define BENCH_PROBE_H

#include "measure.h"

/** What to look at. */
typedef struct {
    bool footprint; /**< kernels, and the matrix product */
    bool arrivals;
} bench_probing_t;

typedef struct {
    bench_footprint_t footprint; /**< kernels 0: not known, footprint_why says why */
    char footprint_why[128];
    double gemm_alone_us, gemm_beside_us; /**< one product; medians, the slowest rank's; NaN: not measured */
    double call_beside_us;                /**< one call meanwhile, mean */
    bool gemm_covered;                    /**< the calls lasted longer than the products beside them */
    /* Arrivals: NaN where not measured. */
    double skew_us, skew_p95_us;           /**< last arrival minus first */
    double wait_us[TPCOMM_MAX_RANKS];      /**< of each rank for the last, mean */
    double last_percent[TPCOMM_MAX_RANKS]; /**< how often each was the last */
    double from_last_us;   /**< from the last arrival to the last rank's end, median: with the looks at the clock */
    double clock_error_us; /**< by how much clocks of different GPUs may disagree */
    /* The same calls without those looks, as the library's own kernels noted them: NaN where they do not. */
    double noted_wait_us[TPCOMM_MAX_RANKS]; /**< of each rank, from its header on its way to the last peer's, mean */
    double noted_last_percent[TPCOMM_MAX_RANKS]; /**< how often each was the last, as the ranks saw it */
} bench_probe_t;

typedef struct bench_prober bench_prober_t;

/** Collective, all ranks alike. On the cpu device it finds out nothing. Fails: as bench_lane_new. */
tpcomm_status_t bench_prober_new(bench_lane_t *lane, const bench_measuring_t *how, const bench_probing_t *what,
                                 bench_prober_t **prober_p);
void bench_prober_free(bench_prober_t *prober);
/** "cuBLAS, 8192 x 8192 x 8192 bf16"; "" where there is no product. */
const char *bench_prober_gemm_text(const bench_prober_t *prober);

/** Look at a variant that can be measured. call_us: what a call of it takes, about. Collective. */
tpcomm_status_t bench_probe(bench_prober_t *prober, const bench_work_t *work, const bench_variant_t *variant,
                            double call_us, bench_probe_t *probe_p);

#endif
