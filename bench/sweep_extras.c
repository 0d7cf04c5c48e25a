/* SPDX-License-Identifier: Apache-2.0 */
/** What a sweep tells beside the times, as tables below them. docs/sweep.md explains their columns. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sweep.h"
#include "text.h"

enum { ASKED_WIDTH = 13 };

static int told_place(const bench_sweep_t *sweep) {
    return sweep->place[BENCH_OUT_OF_PLACE] ? BENCH_OUT_OF_PLACE : BENCH_IN_PLACE;
}

static bool was_measured(const bench_sweep_t *sweep, const bench_sweep_row_t *row, size_t p) {
    return row->us[p][told_place(sweep)].n > 0;
}

/** Size, type and path of a row. */
static void print_begin(FILE *file, const bench_sweep_t *sweep, const bench_sweep_row_t *row, size_t p) {
    fprintf(file, "%12" PRIu64 " %5s %-*s", row->bytes,
            tpc_coll_moves_data(row->work.coll) ? tpcomm_dtype_name(row->work.dtype) : "-", ASKED_WIDTH,
            bench_sweep_asked(sweep, p));
}

static double typical(const bench_summary_t *us) {
    return us->n == 0 ? NAN : isnan(us->p50) ? us->mean : us->p50;
}

static void print_chain(FILE *file, const bench_sweep_t *sweep, const bench_sweep_row_t *row, size_t p) {
    if (row->chain[p].us.n == 0) return;
    print_begin(file, sweep, row, p);
    bench_text_number(file, 10, typical(&row->chain[p].us));
    bench_text_number(file, 10, typical(&row->chain_alone));
    bench_text_number(file, 10, bench_sweep_chain_extra(row, p));
    bench_text_number(file, 10, typical(&row->us[p][told_place(sweep)]));
    fprintf(file, " %6" PRIu64 "\n", row->chain[p].wrong);
}

static uint32_t sms_of(const bench_footprint_t *of) {
    return of->blocks_per_sm ? (of->blocks + of->blocks_per_sm - 1) / of->blocks_per_sm : 0;
}

static void print_footprint(FILE *file, const bench_sweep_t *sweep, const bench_sweep_row_t *row, size_t p) {
    const bench_probe_t *probe = &row->probes[p];
    const bench_footprint_t *of = &probe->footprint;
    print_begin(file, sweep, row, p);
    if (of->kernels + of->others == 0) {
        fprintf(file, "  %s\n", probe->footprint_why);
        return;
    }
    fprintf(file, " %7" PRIu32 " %6" PRIu32 " %7" PRIu32 " %5" PRIu32 " %7" PRIu32 " %8" PRIu32, of->kernels,
            of->blocks, of->threads, of->registers, of->shared_bytes, sms_of(of));
    bench_text_number(file, 9, probe->gemm_alone_us);
    bench_text_number(file, 9, probe->gemm_beside_us);
    bench_text_number(file, 7, 100 * (probe->gemm_beside_us / probe->gemm_alone_us - 1));
    bench_text_number(file, 9, probe->call_beside_us);
    fprintf(file, "%s\n", isnan(probe->gemm_beside_us) || probe->gemm_covered ? "" : " in part");
}

static void print_arrivals(FILE *file, const bench_sweep_t *sweep, const bench_sweep_row_t *row, size_t p,
                           int32_t ranks) {
    const bench_probe_t *probe = &row->probes[p];
    if (isnan(probe->skew_us)) return;
    print_begin(file, sweep, row, p);
    bench_text_number(file, 8, probe->skew_us);
    bench_text_number(file, 8, probe->skew_p95_us);
    bench_text_number(file, 9, probe->from_last_us);
    bench_text_number(file, 7, probe->clock_error_us);
    fputs("  ", file);
    for (int32_t r = 0; r < ranks; r++)
        fprintf(file, "%s%.2f (%.0f%%)", r ? ", " : "", probe->wait_us[r], probe->last_percent[r]);
    for (int32_t r = 0; r < ranks && !isnan(probe->noted_wait_us[r]); r++)
        fprintf(file, "%s%.2f (%.0f%%)", r ? ", " : "; ", probe->noted_wait_us[r], probe->noted_last_percent[r]);
    fputc('\n', file);
}

static void print_counted(FILE *file, const bench_sweep_t *sweep, const bench_sweep_row_t *row, size_t p) {
    const bench_measured_t *measured = &row->measured[p][told_place(sweep)];
    if (isnan(measured->wait_us)) return;
    print_begin(file, sweep, row, p);
    bench_text_number(file, 8, measured->skew_us);
    bench_text_number(file, 8, measured->wait_us);
    fputc('\n', file);
}

static void print_choice(FILE *file, const bench_sweep_t *sweep, const bench_sweep_row_t *row, size_t p) {
    const bench_nccl_choice_t *nccl = &row->measured[p][told_place(sweep)].nccl;
    if (!nccl->known) return;
    print_begin(file, sweep, row, p);
    fprintf(file, "  %s, %s", nccl->algorithm, nccl->protocol);
    if (nccl->channels)
        fprintf(file, ", %d channels\n", nccl->channels);
    else
        fputs(", channels not said\n", file);
}

static bool any_counted(const bench_sweep_t *sweep, const bench_sweep_result_t *result) {
    for (size_t r = 0; r < result->row_count; r++)
        for (size_t p = 0; p < sweep->path_count; p++)
            if (!isnan(result->rows[r].measured[p][told_place(sweep)].wait_us) &&
                was_measured(sweep, &result->rows[r], p))
                return true;
    return false;
}

enum { CHAIN, FOOTPRINT, ARRIVALS, COUNTED, NCCL };

static void print_table(FILE *file, const bench_sweep_t *sweep, const bench_sweep_result_t *result, int kind) {
    for (size_t r = 0; r < result->row_count; r++)
        for (size_t p = 0; p < sweep->path_count; p++) {
            const bench_sweep_row_t *row = &result->rows[r];
            if (!was_measured(sweep, row, p) || (!row->probes && (kind == FOOTPRINT || kind == ARRIVALS))) continue;
            if (kind == CHAIN) print_chain(file, sweep, row, p);
            if (kind == FOOTPRINT) print_footprint(file, sweep, row, p);
            if (kind == ARRIVALS) print_arrivals(file, sweep, row, p, result->manifest.info.size);
            if (kind == COUNTED) print_counted(file, sweep, row, p);
            if (kind == NCCL) print_choice(file, sweep, row, p);
        }
}

void bench_sweep_print_extras(FILE *file, const bench_sweep_t *sweep, const bench_sweep_result_t *result) {
    bool gpu = result->manifest.ranks[0].has_gpu != 0;
    if (sweep->chain) {
        fprintf(file,
                "\nin a chain: something writes the input, the call, something reads the output; us\n"
                "#%11s %5s %-*s %10s %10s %10s %10s %6s\n",
                "size", "type", ASKED_WIDTH, "asked", "chain", "without", "extra", "call alone", "#wrong");
        print_table(file, sweep, result, CHAIN);
    }
    if (sweep->probing.footprint) {
        fprintf(file,
                "\nkernels of a call, and a matrix product beside it (%s)\n"
                "#%11s %5s %-*s %7s %6s %7s %5s %7s %8s %9s %9s %7s %9s\n",
                result->gemm[0] ? result->gemm : "none", "size", "type", ASKED_WIDTH, "asked", "kernels", "blocks",
                "threads", "regs", "shared", "SMs full", "gemm us", "beside", "slower%", "call us");
        print_table(file, sweep, result, FOOTPRINT);
    }
    if (sweep->probing.arrivals && gpu) {
        fprintf(file, "\narrivals at a call by the GPUs' clocks; us\n#%11s %5s %-*s %8s %8s %9s %7s  %s\n", "size",
                "type", ASKED_WIDTH, "asked", "skew", "p95", "from last", "clocks",
                "wait of each rank (how often last); as its own kernels note it");
        print_table(file, sweep, result, ARRIVALS);
    }
    if (sweep->probing.arrivals && !gpu && any_counted(sweep, result)) {
        fprintf(file, "\narrivals at a call by the library's counters; us, means\n#%11s %5s %-*s %8s %8s\n", "size",
                "type", ASKED_WIDTH, "asked", "skew", "wait");
        print_table(file, sweep, result, COUNTED);
    }
    if (sweep->nccl_evidence) {
        fputs("\nwhat NCCL chose, by its log\n", file);
        print_table(file, sweep, result, NCCL);
        bench_text_line(file, "transport", "%s", result->transports[0] ? result->transports : "the log names none");
    }
    if (result->nccl[0]) bench_text_line(file, "directly", "%s", result->nccl);
}
