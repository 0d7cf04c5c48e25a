/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that the flight record keeps the last calls, tells which are gone, and that what another thread reads while it
 * is written is one whole record: the one asked for, or none.
 */
#include <pthread.h>

#include "check.h"
#include "health/flight.h"

#define CALLS 300000u

static tpc_flight_t flight;
static _Atomic int done;

/* Every field of call seq is a function of seq. */
static tpcomm_call_t call_of(uint64_t seq) {
    return (tpcomm_call_t){.coll = (tpcomm_coll_t)(seq % 5 + 1),
                           .dtype = (tpcomm_dtype_t)(seq % 12 + 1),
                           .op = (tpcomm_op_t)(seq % 5 + 1),
                           .root = (int32_t)(seq % 7),
                           .count = seq * 3,
                           .tag = seq * 5};
}

static void check_record(const tpc_flight_record_t *record, uint64_t seq) {
    tpcomm_call_t call = call_of(seq);
    CHECK_EQ(record->seq, seq);
    CHECK_EQ(record->count, call.count);
    CHECK_EQ(record->tag, call.tag);
    CHECK_EQ(record->bytes, seq * 7);
    CHECK_EQ(record->stream, seq * 11);
    CHECK_EQ(record->start_ns, seq * 13);
    CHECK_EQ(record->coll, call.coll);
    CHECK_EQ(record->dtype, call.dtype);
    CHECK_EQ(record->op, call.op);
    CHECK_EQ(record->root, call.root);
    CHECK_EQ(record->path, TPCOMM_PATH_LOCAL);
    if (record->end_ns == 0) return;
    CHECK_EQ(record->end_ns, seq * 17);
    CHECK_EQ(record->status, TPCOMM_ERR_TIMEOUT);
    CHECK_EQ(record->wait_ns, seq * 19);
}

static void make(uint64_t seq) {
    tpcomm_call_t call = call_of(seq);
    tpc_flight_record_t *record = tpc_flight_next(&flight, &call, TPCOMM_PATH_LOCAL, seq * 7);
    record->stream = seq * 11;
    tpc_flight_begin(&flight, seq * 13);
    record->wait_ns = seq * 19;
    tpc_flight_end(&flight, TPCOMM_ERR_TIMEOUT, seq * 17);
}

static void *write_calls(void *arg) {
    (void)arg;
    for (uint64_t seq = 1; seq <= CALLS; seq++) make(seq);
    atomic_store(&done, 1);
    return NULL;
}

static void check_reading_while_written(void) {
    pthread_t writer;
    tpc_flight_record_t record;
    uint64_t read = 0;
    flight = (tpc_flight_t){0};
    CHECK_OK(tpc_flight_init(&flight, 16));
    CHECK_EQ(pthread_create(&writer, NULL, write_calls, NULL), 0);
    while (atomic_load(&done) == 0) {
        uint64_t last = atomic_load(&flight.seq);
        for (uint64_t seq = tpc_flight_oldest(&flight); seq <= last; seq++) {
            if (!tpc_flight_read(&flight, seq, &record)) continue;
            check_record(&record, seq);
            read++;
        }
    }
    CHECK_EQ(pthread_join(writer, NULL), 0);
    for (uint64_t seq = CALLS - 15; seq <= CALLS; seq++) {
        CHECK(tpc_flight_read(&flight, seq, &record));
        check_record(&record, seq);
        CHECK(record.end_ns != 0);
    }
    printf("%llu records read beside the writer\n", (unsigned long long)read);
    tpc_flight_free(&flight);
}

static void check_ring(void) {
    tpc_flight_record_t record;
    flight = (tpc_flight_t){0};
    CHECK_OK(tpc_flight_init(&flight, 17)); /* the next power of two */
    CHECK_EQ(flight.mask, 31);
    CHECK(!tpc_flight_read(&flight, 0, &record));
    CHECK(!tpc_flight_read(&flight, 1, &record));
    for (uint64_t seq = 1; seq <= 100; seq++) {
        make(seq);
        CHECK_EQ(tpc_flight_oldest(&flight), seq > 32 ? seq - 31 : 1);
        CHECK_EQ(atomic_load(&flight.ended), seq);
    }
    for (uint64_t seq = 1; seq <= 102; seq++) CHECK_EQ(tpc_flight_read(&flight, seq, &record), seq > 68 && seq <= 100);
    tpc_flight_free(&flight);
}

static void check_text(void) {
    char text[128];
    tpc_flight_record_t record = {
        .seq = 7, .coll = TPCOMM_ALL_REDUCE, .count = 4096, .dtype = TPCOMM_BF16, .op = TPCOMM_SUM};
    CHECK(strcmp(tpc_flight_text(&record, text, sizeof text), "all_reduce seq 7 count 4096 bf16 sum") == 0);
    record.coll = TPCOMM_BROADCAST;
    record.root = 2;
    CHECK(strcmp(tpc_flight_text(&record, text, sizeof text), "broadcast seq 7 count 4096 bf16 root 2") == 0);
    record.coll = TPCOMM_BARRIER;
    CHECK(strcmp(tpc_flight_text(&record, text, sizeof text), "barrier seq 7") == 0);
}

int main(void) {
    check_ring();
    check_text();
    check_reading_while_written();
    return 0;
}
