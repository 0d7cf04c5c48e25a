/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check what watches over calls that are queued on a stream: the call under way is the one that is timed and told, not
 * the last one made; a call that ends is not late however many follow; numbers wrap. A look that is not to compare does
 * not, and a late call whose peer came with another one is told as that.
 */
#include <unistd.h>

#include "check.h"
#include "nccl_backend/progress.h"

typedef struct {
    _Atomic uint64_t word;
    tpc_failure_slot_t slots[2];
    _Atomic uint32_t timeout_ms;
    tpc_nccl_control_t control;
    tpc_rank_calls_t noted[2];
    tpc_calls_t calls[2];
    tpc_failure_t failure[2];
    tpc_wait_t wait[2];
    tpc_backend_group_t group[2];
    tpc_nccl_progress_t progress[2];
} pair_t;

enum { STARTED, ENDED };

static pair_t *pair_new(uint32_t timeout_ms) {
    pair_t *pair = calloc(1, sizeof *pair);
    CHECK(pair != NULL);
    atomic_store(&pair->timeout_ms, timeout_ms);
    for (int32_t r = 0; r < 2; r++) {
        pair->failure[r] = (tpc_failure_t){.word = &pair->word, .slots = pair->slots, .rank = r, .size = 2};
        pair->wait[r] = (tpc_wait_t){.failure = &pair->failure[r], .timeout_ms = &pair->timeout_ms};
        pair->group[r] = (tpc_backend_group_t){.agreed = {.size = 2},
                                               .rank = r,
                                               .wait = &pair->wait[r],
                                               .failure = &pair->failure[r],
                                               .calls = &pair->calls[r]};
        pair->calls[r] =
            (tpc_calls_t){.ranks = pair->noted, .failure = &pair->failure[r], .rank = r, .size = 2, .compares = true};
        CHECK_OK(tpc_nccl_progress_init(&pair->progress[r], &pair->group[r], &pair->control));
    }
    return pair;
}

static void pair_free(pair_t *pair) {
    for (int32_t r = 0; r < 2; r++) tpc_nccl_progress_end(&pair->progress[r]);
    free(pair);
}

/* Rank r makes calls from to to; the stream's words stay what they are. */
static void make(pair_t *pair, int32_t r, uint64_t from, uint64_t to, uint64_t count) {
    uint32_t started = pair->progress[r].words[STARTED];
    for (uint64_t seq = from; seq <= to; seq++) {
        tpc_flight_record_t record = {.seq = seq,
                                      .coll = TPCOMM_ALL_REDUCE,
                                      .dtype = TPCOMM_BF16,
                                      .op = TPCOMM_SUM,
                                      .path = TPCOMM_PATH_NCCL,
                                      .count = count};
        tpc_request_t request = {.record = &record};
        pair->calls[r].number = seq - 1;
        tpc_calls_note(&pair->calls[r], &record);
        tpc_nccl_progress_begin(&pair->progress[r], &request);
    }
    pair->progress[r].words[STARTED] = started;
}

static void set_words(pair_t *pair, int32_t r, uint64_t started, uint64_t ended) {
    pair->progress[r].words[STARTED] = (uint32_t)started;
    pair->progress[r].words[ENDED] = (uint32_t)ended;
}

static tpcomm_status_t look(pair_t *pair, int32_t r, bool compares, char text[512]) {
    tpc_failure_place_t place;
    tpc_nccl_progress_look(&pair->progress[r], compares);
    return tpc_failure_read(&pair->failure[r], &place, text, 512);
}

/* Looks until something is wrong: a look behind a stop of this process does not count its time. */
static tpcomm_status_t look_late(pair_t *pair, int32_t r, bool compares, char text[512]) {
    tpcomm_status_t status = TPCOMM_OK;
    for (int i = 0; i < 1000 && status == TPCOMM_OK; i++) {
        usleep(5000);
        status = look(pair, r, compares, text);
    }
    return status;
}

static void check_text(const char *text, const char *piece) {
    if (strstr(text, piece) == NULL) FAIL("\"%s\" does not have \"%s\"", text, piece);
}

/* base: numbers around a wrap of the stream's words, too. */
static void timed(uint64_t base) {
    char text[512], want[64];
    pair_t *pair = pair_new(1000000);
    make(pair, 0, base + 1, base + 40, 100);
    make(pair, 1, base + 1, base + 4, 100);
    for (uint64_t seq = base + 1; seq <= base + 4; seq++) { /* the time of one does not count for the next */
        atomic_store(&pair->timeout_ms, 1);
        set_words(pair, 0, seq, seq - 1);
        CHECK_OK(look(pair, 0, true, text));
        atomic_store(&pair->timeout_ms, 1000000);
        usleep(5000);
        CHECK_OK(look(pair, 0, true, text));
    }
    atomic_store(&pair->timeout_ms, 1);
    set_words(pair, 0, base + 4, base + 4); /* between two calls nothing is late */
    CHECK_OK(look(pair, 0, true, text));
    usleep(5000);
    CHECK_OK(look(pair, 0, true, text));
    set_words(pair, 0, base + 5, base + 4);
    CHECK_OK(look(pair, 0, true, text));
    CHECK_STATUS(look_late(pair, 0, true, text), TPCOMM_ERR_TIMEOUT);
    snprintf(want, sizeof want, "all_reduce seq %llu count 100", (unsigned long long)(base + 5));
    check_text(text, want);
    snprintf(want, sizeof want, "waiting for rank 1 (last seq %llu)", (unsigned long long)(base + 4));
    check_text(text, want);
    pair_free(pair);
}

static void compared(void) {
    char text[512];
    pair_t *pair = pair_new(1000000);
    make(pair, 0, 1, 30, 100);
    make(pair, 1, 1, 11, 100);
    CHECK_OK(look(pair, 0, true, text));
    make(pair, 1, 12, 12, 99);
    CHECK_OK(look(pair, 0, false, text));
    CHECK_STATUS(look(pair, 0, true, text), TPCOMM_ERR_MISMATCH);
    check_text(text, "rank 0 called all_reduce seq 12 count 100 bf16 sum by nccl");
    check_text(text, "rank 1 called all_reduce seq 12 count 99 bf16 sum by nccl");
    pair_free(pair);

    pair = pair_new(1); /* late: for that reason */
    make(pair, 0, 1, 1, 100);
    make(pair, 1, 1, 1, 99);
    set_words(pair, 0, 1, 0);
    CHECK_OK(look(pair, 0, false, text));
    CHECK_STATUS(look_late(pair, 0, false, text), TPCOMM_ERR_MISMATCH);
    pair_free(pair);
}

int main(void) {
    timed(0);
    timed(0xFFFFFFFEu);
    compared();
    return 0;
}
