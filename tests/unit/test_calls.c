/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check how what ranks have called is compared (health/calls.h): every fact of a call that ranks must have equal is
 * compared and named on both sides, and none that may differ; the first difference is named, whether it is found at
 * once or later; one that is no longer kept is found by the hash of what came before; nothing is compared where that is
 * switched off; a rank that is ahead is waited for; what another host tells is compared like the rest.
 */
#include "check.h"
#include "health/calls.h"

#define RANKS 3

typedef struct {
    _Atomic uint64_t word;
    tpc_failure_slot_t slots[RANKS];
    tpc_failure_t failure[RANKS];
    tpc_rank_calls_t noted[RANKS];
    tpc_calls_t calls[RANKS];
} group_t;

static const tpc_flight_record_t usual = {
    .coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_BF16, .op = TPCOMM_SUM, .path = TPCOMM_PATH_NCCL, .count = 4096};

static group_t *group_new(bool compares) {
    group_t *group = calloc(1, sizeof *group);
    CHECK(group != NULL);
    for (int32_t r = 0; r < RANKS; r++) {
        group->failure[r] = (tpc_failure_t){.word = &group->word, .slots = group->slots, .rank = r, .size = RANKS};
        group->calls[r] = (tpc_calls_t){
            .ranks = group->noted, .failure = &group->failure[r], .rank = r, .size = RANKS, .compares = compares};
    }
    return group;
}

/* Rank r calls this n times, as its next calls. */
static void make(group_t *group, int32_t r, tpc_flight_record_t record, int n) {
    for (int i = 0; i < n; i++) {
        record.seq = group->calls[r].number + 101; /* seq need not be the number */
        CHECK_EQ(tpc_calls_note(&group->calls[r], &record), record.seq - 100);
    }
}

static void make_all(group_t *group, int n) {
    for (int32_t r = 0; r < RANKS; r++) make(group, r, usual, n);
}

static tpcomm_status_t look(group_t *group, int32_t r, char text[512]) {
    tpc_failure_place_t place;
    tpc_calls_compare(&group->calls[r]);
    return tpc_failure_read(&group->failure[r], &place, text, 512);
}

static void check_has(const char *text, const char *piece) {
    if (strstr(text, piece) == NULL) FAIL("\"%s\" does not have \"%s\"", text, piece);
}

static void every_fact(void) {
    static const struct {
        tpc_flight_record_t a, b;
        const char *as, *bs; /* NULL: they are the same call */
    } pairs[] = {
        {{.coll = TPCOMM_BARRIER},
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .count = 1},
         "barrier seq 103",
         "all_reduce seq 103 count 1 f32 sum"},
        {{.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .count = 5},
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .count = UINT64_C(5) << 40},
         "count 5 ",
         "count 5497558138880 "},
        {{.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F16, .op = TPCOMM_SUM, .count = 5},
         {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_BF16, .op = TPCOMM_SUM, .count = 5},
         " f16 sum",
         " bf16 sum"},
        {{.coll = TPCOMM_REDUCE_SCATTER, .dtype = TPCOMM_F16, .op = TPCOMM_SUM, .count = 5},
         {.coll = TPCOMM_REDUCE_SCATTER, .dtype = TPCOMM_F16, .op = TPCOMM_MAX, .count = 5},
         " sum",
         " max"},
        {{.coll = TPCOMM_BROADCAST, .dtype = TPCOMM_F16, .root = 0, .count = 5},
         {.coll = TPCOMM_BROADCAST, .dtype = TPCOMM_F16, .root = 2, .count = 5},
         "root 0",
         "root 2"},
        {{.coll = TPCOMM_ALL_GATHER, .dtype = TPCOMM_F16, .count = 5, .path = TPCOMM_PATH_NCCL},
         {.coll = TPCOMM_ALL_GATHER, .dtype = TPCOMM_F16, .count = 5, .path = TPCOMM_PATH_ONESHOT},
         "by nccl",
         "by oneshot"},
        {{.coll = TPCOMM_ALL_GATHER_ROWS, .dtype = TPCOMM_F16, .count = 64, .rows = {.hidden = 8}},
         {.coll = TPCOMM_ALL_GATHER_ROWS, .dtype = TPCOMM_F16, .count = 64, .rows = {.hidden = 16}},
         "hidden 8",
         "hidden 16"},
        {{.coll = TPCOMM_ALL_REDUCE_RMS_NORM, .dtype = TPCOMM_F16, .count = 64, .rows = {8, 0, 0x3727C5AC, 0}},
         {.coll = TPCOMM_ALL_REDUCE_RMS_NORM, .dtype = TPCOMM_F16, .count = 64, .rows = {8, 0, 0x358637BD, 0}},
         "eps 9.99999975e-06",
         "eps 9.99999997e-07"},
        {{.coll = TPCOMM_ALL_REDUCE_RMS_NORM, .dtype = TPCOMM_F16, .count = 64, .rows = {8, 0, 0x3727C5AC, 0}},
         {.coll = TPCOMM_ALL_REDUCE_RMS_NORM,
          .dtype = TPCOMM_F16,
          .count = 64,
          .rows = {8, TPC_ROWS_RESIDUAL, 0x3727C5AC, 0x3F800000}},
         "bias 0",
         "bias 1"},
        /* What is not looked at, or each rank's own. */
        {{.coll = TPCOMM_BARRIER, .dtype = TPCOMM_F16, .count = 7, .tag = 1}, {.coll = TPCOMM_BARRIER}, NULL, NULL},
        {{.coll = TPCOMM_ALL_GATHER, .dtype = TPCOMM_I8, .op = TPCOMM_MAX, .root = 1, .count = 5, .stream = 9},
         {.coll = TPCOMM_ALL_GATHER, .dtype = TPCOMM_I8, .op = TPCOMM_MIN, .root = 2, .count = 5, .tag = 4},
         NULL,
         NULL},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        for (int32_t odd = 1; odd < RANKS; odd++) {
            char text[512];
            group_t *group = group_new(true);
            make_all(group, 2);
            for (int32_t r = 0; r < RANKS; r++) make(group, r, r == odd ? pairs[i].b : pairs[i].a, 1);
            make_all(group, 1);
            CHECK_STATUS(look(group, 0, text), pairs[i].as == NULL ? TPCOMM_OK : TPCOMM_ERR_MISMATCH);
            if (pairs[i].as != NULL) {
                char odd_says[64];
                snprintf(odd_says, sizeof odd_says, "rank %d called %s", odd, tpcomm_coll_name(pairs[i].b.coll));
                check_has(text, "rank 0 called");
                check_has(text, odd_says);
                check_has(text, pairs[i].as);
                check_has(text, pairs[i].bs);
            }
            free(group);
        }
    }
}

/* A difference is found whenever somebody looks, and named while it is kept. */
static void found_late(void) {
    static const int later[] = {0, 1, TPC_CALLS_KEPT - 1, TPC_CALLS_KEPT, 5 * TPC_CALLS_KEPT};
    tpc_flight_record_t other = usual;
    other.op = TPCOMM_MAX;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        for (int looked_before = 0; looked_before < 2; looked_before++) {
            char text[512];
            group_t *group = group_new(true);
            make_all(group, 700);
            if (looked_before) CHECK_OK(look(group, 0, text));
            for (int32_t r = 0; r < RANKS; r++) make(group, r, r == 1 ? other : usual, 1);
            make_all(group, later[i]);
            CHECK_STATUS(look(group, 0, text), TPCOMM_ERR_MISMATCH);
            if ((unsigned)later[i] < TPC_CALLS_KEPT) {
                check_has(text, "rank 0 called all_reduce seq 801 count 4096 bf16 sum by nccl");
                check_has(text, "rank 1 called all_reduce seq 801 count 4096 bf16 max by nccl");
            } else {
                check_has(text, "rank 0 and rank 1 made different calls");
            }
            free(group);
        }
}

static void one_is_ahead(void) {
    char text[512];
    tpc_flight_record_t other = usual;
    other.count = 1;
    group_t *group = group_new(true);
    make(group, 0, usual, 2000);
    CHECK_OK(look(group, 0, text));
    make(group, 1, usual, 1000); /* rank 0's are not kept any more */
    make(group, 2, usual, 2000);
    CHECK_OK(look(group, 0, text));
    make(group, 1, usual, 999);
    CHECK_OK(look(group, 0, text));
    make(group, 1, other, 1);
    CHECK_OK(look(group, 1, text) == TPCOMM_ERR_MISMATCH ? TPCOMM_OK : TPCOMM_ERR_IO);
    check_has(text, "rank 1 called all_reduce seq 2100 count 1 bf16 sum by nccl, rank 0 called all_reduce seq 2100 "
                    "count 4096 bf16 sum by nccl");
    free(group);
}

static void switched_off(void) {
    char text[512];
    tpc_flight_record_t other = usual;
    other.count = 1;
    group_t *group = group_new(false);
    make(group, 0, usual, 1);
    make(group, 1, other, 1);
    CHECK_OK(look(group, 0, text));
    CHECK_EQ(tpc_calls_last_seq(&group->calls[0], 1), 101); /* who is where is known all the same */
    CHECK_EQ(tpc_calls_last_seq(&group->calls[0], 2), 0);
    free(group);
}

/* Rank 2 is elsewhere: what it calls comes here as it was noted there. */
static void told(void) {
    char text[512];
    tpc_call_note_t note;
    tpc_flight_record_t other = usual;
    other.dtype = TPCOMM_F16;
    group_t *here = group_new(true), *there = group_new(true);
    for (int i = 0; i < 9; i++) {
        make_all(here, 1);
        make(there, 2, i < 8 ? usual : other, 1);
    }
    memset(&here->noted[2], 0, sizeof here->noted[2]);
    for (uint64_t number = 1; number <= 9; number++) {
        CHECK_OK(look(here, 0, text));
        CHECK(tpc_calls_read(&there->calls[2], 2, number, &note));
        CHECK(!tpc_calls_read(&there->calls[2], 2, number + TPC_CALLS_KEPT, &note));
        tpc_calls_keep(&here->calls[0], 2, &note);
    }
    CHECK_STATUS(look(here, 0, text), TPCOMM_ERR_MISMATCH);
    check_has(text, "rank 0 called all_reduce seq 109 count 4096 bf16 sum");
    check_has(text, "rank 2 called all_reduce seq 109 count 4096 f16 sum");
    free(here);
    free(there);
}

int main(void) {
    every_fact();
    found_late();
    one_is_ahead();
    switched_off();
    told();
    return 0;
}
