/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check what all_reduce_reuse checks of every other collective, and of several groups on the same buffers: random
 * collectives, dtypes, roots, counts (0 among them) and paths follow each other on a world, the same ranks in another
 * order and a part of them, without any other order between ranks; each caller overwrites its input as soon as its own
 * call returns (W1, F3); whether a call is in place, how it is aligned and how late a rank is differs between ranks
 * (F1, C5); nothing beside the output is touched (F5, W7); epochs pass their wrap (F6). Calls with a norm give the bits
 * of the sum and the norm alone.
 */
#include <unistd.h>

#include "base/status.h"
#include "multirank/pattern.h"
#include "multirank/ranks.h"

enum { ROOM = 352 * 1024, EDGE = 64, CALLS = TEST_SANITIZED ? 60 : 200, HIDDEN_MAX = 512 };

/* The same two areas for every call, and what must be there. */
typedef struct {
    unsigned char *in, *out, *want, *residual, *weight;
} areas_t;

/* What all ranks draw alike. */
typedef struct {
    tpcomm_coll_t coll;
    tpcomm_dtype_t dtype;
    tpcomm_op_t op;
    int32_t root, hidden;
    size_t count;
    uint64_t seed;
} draw_t;

static draw_t draw_call(uint64_t *shared, int32_t size) {
    static const tpcomm_coll_t colls[] = {TPCOMM_ALL_REDUCE,     TPCOMM_BROADCAST,           TPCOMM_ALL_GATHER,
                                          TPCOMM_REDUCE_SCATTER, TPCOMM_ALL_REDUCE_RMS_NORM, TPCOMM_ALL_GATHER_ROWS,
                                          TPCOMM_BARRIER};
    uint64_t draw = random_next(shared), more = random_next(shared);
    draw_t made = {.coll = colls[draw % 7], .seed = more, .op = TPCOMM_SUM, .root = (int32_t)(draw >> 8) % size};
    if (made.root < 0) made.root = 0;
    bool norms = tpc_coll_norms(made.coll);
    made.dtype = (tpcomm_dtype_t)(1 + (draw >> 40) % (norms ? 3 : tpc_coll_reduces(made.coll) ? 10 : 12));
    if (!norms && tpc_reduction_defined(made.dtype, (tpcomm_op_t)(1 + (draw >> 44) % 5)))
        made.op = (tpcomm_op_t)(1 + (draw >> 44) % 5);
    size_t most = (draw >> 48) % 4 == 0 ? 40000 : 300;
    made.count = (draw >> 50) % 16 == 0 ? 0 : (size_t)(more % most);
    if (tpc_coll_has_rows(made.coll)) {
        made.hidden = norms ? 8 * (1 + (int32_t)((draw >> 54) % (HIDDEN_MAX / 8))) : 1 + (int32_t)((draw >> 54) % 300);
        made.count = made.count / (size_t)made.hidden * (size_t)made.hidden;
    }
    if (made.coll == TPCOMM_ALL_GATHER || made.coll == TPCOMM_REDUCE_SCATTER) made.count /= (size_t)size;
    return made;
}

/* Elements of the call's two buffers on this rank, and how far inside the larger the smaller one lies in place. */
typedef struct {
    size_t in, out, offset;
} shape_t;

static shape_t shape_of(const draw_t *draw, int32_t rank, int32_t size) {
    size_t all = draw->count * (size_t)size;
    if (draw->coll == TPCOMM_BARRIER) return (shape_t){0, 0, 0};
    if (draw->coll == TPCOMM_ALL_GATHER) return (shape_t){draw->count, all, draw->count * (size_t)rank};
    if (draw->coll == TPCOMM_REDUCE_SCATTER) return (shape_t){all, draw->count, draw->count * (size_t)rank};
    if (draw->coll == TPCOMM_ALL_GATHER_ROWS) {
        uint64_t first = 0, rows = 0;
        CHECK_OK(tpcomm_row_range(draw->count / (size_t)draw->hidden, size, rank, &first, &rows));
        return (shape_t){rows * (size_t)draw->hidden, draw->count, first * (size_t)draw->hidden};
    }
    return (shape_t){draw->count, draw->count, 0};
}

static tpcomm_rms_norm_t norm_of(const draw_t *draw, const areas_t *areas, const void *in, void *out) {
    return (tpcomm_rms_norm_t){.struct_size = sizeof(tpcomm_rms_norm_t),
                               .dtype = draw->dtype,
                               .hidden = draw->hidden,
                               .tokens = draw->count / (size_t)draw->hidden,
                               .eps = 1e-5f,
                               .in = in,
                               .weight = areas->weight,
                               .residual = areas->residual,
                               .out = out};
}

/* Into areas->want: this rank's output. Returns its bytes. */
static size_t expect(const draw_t *draw, areas_t *areas, const shape_t *shape, int32_t rank, int32_t size) {
    size_t element = tpcomm_dtype_size(draw->dtype), bytes = shape->out * element;
    unsigned char *all = malloc((shape->in > shape->out ? shape->in : shape->out) * element * (size_t)size + 1);
    CHECK(all != NULL);
    if (draw->coll == TPCOMM_BROADCAST) {
        pattern_fill(PATTERN_BITS, draw->dtype, draw->seed, draw->root, draw->count, areas->want);
    } else if (draw->coll == TPCOMM_ALL_GATHER || draw->coll == TPCOMM_ALL_GATHER_ROWS) {
        for (int32_t r = 0; r < size; r++) {
            shape_t theirs = shape_of(draw, r, size);
            pattern_fill(PATTERN_BITS, draw->dtype, draw->seed, r, theirs.in, areas->want + theirs.offset * element);
        }
    } else if (draw->coll == TPCOMM_REDUCE_SCATTER) {
        pattern_result(PATTERN_BITS, draw->dtype, draw->op, draw->seed, size, shape->in, all);
        memcpy(areas->want, all + (size_t)rank * bytes, bytes);
    } else if (draw->coll != TPCOMM_BARRIER) {
        pattern_result(PATTERN_BITS, draw->dtype, draw->op, draw->seed, size, shape->in, areas->want);
        if (tpc_coll_norms(draw->coll)) {
            /* The norm alone, of the sum that must come out; the residual is read and written, so of a copy. */
            memcpy(all, areas->residual, bytes);
            tpcomm_rms_norm_t norm = norm_of(draw, areas, areas->want, areas->want);
            norm.residual = all;
            CHECK_OK(tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, NULL));
        }
    }
    free(all);
    return bytes;
}

static void one_call(tpcomm_t *comm, int32_t rank, int32_t size, const draw_t *draw, areas_t *areas, uint64_t *own) {
    shape_t shape = shape_of(draw, rank, size);
    size_t element = tpcomm_dtype_size(draw->dtype);
    uint64_t local = random_next(own);
    if (local % 97 == 0) usleep((useconds_t)(local >> 8) % 2000);
    bool in_place = (local >> 20) % 2 == 0;
    unsigned char *in = areas->in + EDGE + (local >> 24) % 5, *out = areas->out + EDGE + (local >> 32) % 7;
    if (in_place && shape.in >= shape.out) out = in + shape.offset * element;
    if (in_place && shape.in < shape.out) in = out + shape.offset * element;
    size_t in_bytes = shape.in * element, bytes = shape.out * element;
    memset(areas->out, 0xEE, ROOM);
    memset(areas->in, 0xDD, ROOM);
    if (tpc_coll_norms(draw->coll)) {
        pattern_fill(PATTERN_EXACT, draw->dtype, draw->seed, 100, draw->count, areas->residual);
        pattern_fill(PATTERN_EXACT, draw->dtype, draw->seed, 101, HIDDEN_MAX, areas->weight);
    }
    CHECK_EQ(expect(draw, areas, &shape, rank, size), bytes);
    pattern_fill(PATTERN_BITS, draw->dtype, draw->seed, rank, shape.in, in);
    if (tpc_coll_norms(draw->coll)) {
        tpcomm_rms_norm_t norm = norm_of(draw, areas, in, out);
        CHECK_OK(tpcomm_all_reduce_rms_norm(comm, &norm, NULL));
    } else {
        tpcomm_call_t call = {.struct_size = sizeof call,
                              .coll = draw->coll,
                              .dtype = draw->dtype,
                              .op = draw->op,
                              .root = draw->root,
                              .hidden = draw->coll == TPCOMM_ALL_GATHER_ROWS ? draw->hidden : 0,
                              .in = in,
                              .out = out,
                              .count = draw->count,
                              .tag = local};
        CHECK_OK(tpcomm_call(comm, &call, NULL));
    }
    if (memcmp(out, areas->want, bytes) != 0)
        FAIL("%s of %zu %s %s, hidden %d, root %d, %s, on rank %d of %d is wrong", tpcomm_coll_name(draw->coll),
             draw->count, tpcomm_dtype_name(draw->dtype), tpcomm_op_name(draw->op), draw->hidden, draw->root,
             in_place ? "in place" : "out of place", rank, size);
    const unsigned char *area = in_place && shape.in >= shape.out ? areas->in : areas->out;
    unsigned char fill = area == areas->in ? 0xDD : 0xEE;
    if (area == areas->out) /* in the other area lies the rest of an input */
        for (const unsigned char *p = area; p < area + ROOM; p++)
            if ((p < out || p >= out + bytes) && *p != fill)
                FAIL("%s of %zu %s wrote %td bytes from its output of %zu", tpcomm_coll_name(draw->coll), draw->count,
                     tpcomm_dtype_name(draw->dtype), p - out, bytes);
    if (in < out || in >= out + bytes) memset(in, 0xFF, in_bytes); /* at once: peers may be reading still */
}

static void body(rank_t *rank) {
    int32_t order[TPCOMM_MAX_RANKS];
    tpcomm_t *groups[3] = {rank->comm, NULL, NULL};
    for (int32_t r = 0; r < rank->size; r++) order[r] = rank->size - 1 - r;
    CHECK_OK(tpcomm_group_create(rank->comm, order, rank->size, "reversed", &groups[1]));
    CHECK_OK(tpcomm_group_create(rank->comm, order, rank->size - 1, "part", &groups[2])); /* without rank 0 */
    areas_t areas = {malloc(ROOM), malloc(ROOM), malloc(ROOM), malloc(ROOM), malloc(HIDDEN_MAX * 8)};
    CHECK(areas.in && areas.out && areas.want && areas.residual && areas.weight);
    uint64_t shared = 9, own = 77 + (uint64_t)rank->rank;
    for (int n = 0; n < CALLS; n++) {
        int which = (int)(random_next(&shared) % 3);
        int32_t size = which == 2 ? rank->size - 1 : rank->size;
        draw_t draw = draw_call(&shared, size);
        if (groups[which] == NULL) continue;
        one_call(groups[which], which == 0 ? rank->rank : rank->size - 1 - rank->rank, size, &draw, &areas, &own);
    }
    for (int g = 1; g < 3; g++) {
        if (groups[g] == NULL) continue;
        CHECK_OK(tpcomm_finalize(groups[g]));
        CHECK_OK(tpcomm_destroy(groups[g]));
    }
    free(areas.in);
    free(areas.out);
    free(areas.want);
    free(areas.residual);
    free(areas.weight);
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    for (int wrap = 0; wrap < 2; wrap++) {
        /* 4294967288 is 2^32 - 8: the epoch passes its wrap in the first calls of each group. */
        ranks_set_hooks(wrap ? "set@epoch:4294967288" : "");
        for (int kind = 0; kind < RANKS_KINDS; kind++)
            for (int32_t size = 2; size <= 4; size++) {
                printf("%d %s%s\n", size, ranks_kind_name(kind), wrap ? ", epochs wrap" : "");
                fflush(stdout);
                ranks_run(kind, size, &config, body, NULL);
            }
    }
    /* The smallest workspace: calls of several rounds. */
    config.workspace_bytes = 65536;
    ranks_set_hooks("");
    ranks_run(RANKS_THREADS, 3, &config, body, NULL);
    return 0;
}
