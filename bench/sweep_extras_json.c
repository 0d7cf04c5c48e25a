/* SPDX-License-Identifier: Apache-2.0 */
/** What a sweep tells beside the times, as JSON. */
#include <math.h>

#include "sweep.h"

static void add_chain(tpc_json_writer_t *w, tpc_json_node_t *parent, const bench_sweep_row_t *row, size_t p) {
    const bench_sweep_chain_t *chain = &row->chain[p];
    if (chain->us.n == 0) {
        bench_json_null(w, parent, "chain");
        return;
    }
    tpc_json_node_t *node = tpc_json_add_object(w, parent, "chain");
    bench_json_summary(w, node, "us", &chain->us);
    bench_json_summary(w, node, "without_call_us", &row->chain_alone);
    tpc_json_add_double(w, node, "extra_us", bench_sweep_chain_extra(row, p));
    tpc_json_add_u64(w, node, "checked", chain->checked);
    tpc_json_add_u64(w, node, "wrong", chain->wrong);
}

static void add_footprint(tpc_json_writer_t *w, tpc_json_node_t *parent, const bench_probe_t *probe) {
    const bench_footprint_t *of = probe ? &probe->footprint : NULL;
    if (!of || of->kernels + of->others == 0) {
        bench_json_null(w, parent, "footprint");
        return;
    }
    tpc_json_node_t *node = tpc_json_add_object(w, parent, "footprint");
    tpc_json_add_u64(w, node, "kernels", of->kernels);
    tpc_json_add_u64(w, node, "copies", of->others);
    tpc_json_add_u64(w, node, "blocks", of->blocks);
    tpc_json_add_u64(w, node, "threads", of->threads);
    tpc_json_add_u64(w, node, "registers", of->registers);
    tpc_json_add_u64(w, node, "shared_bytes", of->shared_bytes);
    tpc_json_add_u64(w, node, "blocks_per_sm", of->blocks_per_sm);
    bench_json_text(w, node, "kernel", of->name);
}

static void add_beside(tpc_json_writer_t *w, tpc_json_node_t *parent, const bench_probe_t *probe) {
    if (!probe || isnan(probe->gemm_beside_us)) {
        bench_json_null(w, parent, "gemm_beside");
        return;
    }
    tpc_json_node_t *node = tpc_json_add_object(w, parent, "gemm_beside");
    tpc_json_add_double(w, node, "alone_us", probe->gemm_alone_us);
    tpc_json_add_double(w, node, "beside_us", probe->gemm_beside_us);
    tpc_json_add_double(w, node, "call_us", probe->call_beside_us);
    tpc_json_add_bool(w, node, "covered", probe->gemm_covered);
}

static void add_arrivals(tpc_json_writer_t *w, tpc_json_node_t *parent, const bench_probe_t *probe, int32_t ranks) {
    if (!probe || isnan(probe->skew_us)) {
        bench_json_null(w, parent, "arrivals");
        return;
    }
    tpc_json_node_t *node = tpc_json_add_object(w, parent, "arrivals");
    tpc_json_add_double(w, node, "skew_us", probe->skew_us);
    tpc_json_add_double(w, node, "skew_p95_us", probe->skew_p95_us);
    tpc_json_add_double(w, node, "from_last_us", probe->from_last_us);
    tpc_json_add_double(w, node, "clock_error_us", probe->clock_error_us);
    tpc_json_node_t *waits = tpc_json_add_array(w, node, "wait_us"),
                    *last = tpc_json_add_array(w, node, "last_percent"),
                    *noted = tpc_json_add_array(w, node, "noted_wait_us"),
                    *noted_last = tpc_json_add_array(w, node, "noted_last_percent");
    for (int32_t r = 0; r < ranks; r++) {
        tpc_json_add_double(w, waits, NULL, probe->wait_us[r]);
        tpc_json_add_double(w, last, NULL, probe->last_percent[r]);
        tpc_json_add_double(w, noted, NULL, probe->noted_wait_us[r]);
        tpc_json_add_double(w, noted_last, NULL, probe->noted_last_percent[r]);
    }
}

static void add_choice(tpc_json_writer_t *w, tpc_json_node_t *parent, const bench_nccl_choice_t *nccl) {
    if (!nccl->known) {
        bench_json_null(w, parent, "nccl");
        return;
    }
    tpc_json_node_t *node = tpc_json_add_object(w, parent, "nccl");
    tpc_json_add_string(w, node, "algorithm", nccl->algorithm);
    tpc_json_add_string(w, node, "protocol", nccl->protocol);
    if (nccl->channels)
        tpc_json_add_i64(w, node, "channels", nccl->channels);
    else
        bench_json_null(w, node, "channels");
}

void bench_sweep_json_extras(tpc_json_writer_t *w, tpc_json_node_t *node, const bench_sweep_t *sweep,
                             const bench_sweep_row_t *row, size_t p, int32_t ranks) {
    int place = sweep->place[BENCH_OUT_OF_PLACE] ? BENCH_OUT_OF_PLACE : BENCH_IN_PLACE;
    const bench_probe_t *probe = row->probes && row->us[p][place].n > 0 ? &row->probes[p] : NULL;
    add_chain(w, node, row, p);
    add_footprint(w, node, probe);
    add_beside(w, node, probe);
    add_arrivals(w, node, probe, ranks);
    add_choice(w, node, &row->measured[p][place].nccl);
}
