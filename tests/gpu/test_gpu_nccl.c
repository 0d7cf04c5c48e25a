/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check path nccl with the real NCCL. On one GPU: it loads, and says its version and file; a communicator of one rank
 * works, ends, and can be aborted; ranks that share the GPU have no such path, and are told why. On two: every dtype,
 * op and collective, exact where the values are; calls by nccl and by our kernels in one order on one stream, on two,
 * and in one graph; a rank that does not come, by deadline and by abort; destroy, and a new communicator afterwards.
 */
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "device/cuda_side.h"
#include "gpu/gpu_ranks.h"
#include "multirank/pattern.h"
#include "nccl_backend/communicator.h"

#define ROOM (8u << 20)

/* ------------------------------------------------------------------ one GPU */

static void settle(tpc_nccl_communicator_t *comm) {
    tpc_deadline_t deadline = tpc_deadline_in(60000, NULL, NULL);
    for (bool done = false; !done;) {
        CHECK_OK(tpc_nccl_comm_settle(comm, &done));
        if (!done && tpc_deadline_left_ms(&deadline) == 0) FAIL("NCCL did not end what was begun");
    }
}

static void alone(void *arg) {
    tpc_nccl_library_t library;
    tpc_cuda_facts_t facts;
    tpc_cuda_scope_t scope;
    tpc_cuda_side_t *side = NULL;
    (void)arg;
    CHECK_OK(tpc_nccl_load("", &library));
    printf("%s\n", library.text);
    CHECK(library.version >= 21400 && library.path[0] == '/');
    tpc_cuda_probe(0, &facts);
    CHECK(facts.usable);
    CHECK_OK(tpc_cuda_enter(&facts, &scope));
    CHECK_OK(tpc_cuda_side_new(256, &side));
    tpc_deadline_t deadline = tpc_deadline_in(60000, NULL, NULL);
    for (int round = 0; round < 2; round++) { /* ended in good order, and by abort */
        tpc_nccl_id_t id;
        tpc_nccl_communicator_t *comm = NULL;
        int32_t value = 41 + round, got = 0;
        CHECK_EQ(library.api.get_id(&id), TPC_NCCL_SUCCESS);
        CHECK_OK(tpc_nccl_comm_join(&library, &id, 1, 0, &facts, &comm));
        settle(comm);
        CHECK_OK(tpc_cuda_side_put(side, &value, sizeof value, &deadline));
        tpc_nccl_call_t call = {.coll = TPCOMM_ALL_REDUCE,
                                .in = tpc_cuda_side_buffer(side),
                                .out = (int32_t *)tpc_cuda_side_buffer(side) + 8,
                                .count = 1,
                                .dtype = TPC_NCCL_INT32,
                                .op = TPC_NCCL_SUM,
                                .stream = tpc_cuda_side_stream(side)};
        CHECK_OK(tpc_cuda_side_mark(side, call.stream, 0, (uint32_t)value));
        CHECK_OK(tpc_nccl_comm_call(comm, &call));
        settle(comm);
        CHECK_OK(tpc_cuda_side_mark(side, call.stream, 1, (uint32_t)value));
        int32_t all[9];
        CHECK_OK(tpc_cuda_side_get(side, all, sizeof all, &deadline));
        got = all[8];
        CHECK_EQ(got, value);
        CHECK_EQ(tpc_cuda_side_word(side, 0), (uint32_t)value); /* what deadlines are made of */
        CHECK_EQ(tpc_cuda_side_word(side, 1), (uint32_t)value);
        tpc_nccl_comm_end(comm, round == 1);
        CHECK(tpc_nccl_comm_free(comm, 30000));
    }
    tpc_cuda_side_free(side);
    tpc_cuda_leave(scope);
    CHECK_EQ(cudaGetLastError(), cudaSuccess);
}

static tpcomm_call_t by_nccl(gpu_rank_t *rank, tpcomm_coll_t coll, tpcomm_dtype_t dtype, tpcomm_op_t op, size_t count) {
    return (tpcomm_call_t){.struct_size = sizeof(tpcomm_call_t),
                           .coll = coll,
                           .dtype = dtype,
                           .op = op,
                           .path = TPCOMM_PATH_NCCL,
                           .in = rank->in,
                           .out = rank->out,
                           .count = count};
}

static void sharing(gpu_rank_t *rank) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_call_t call = by_nccl(rank, TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 8);
    CHECK_OK(tpcomm_comm_info(rank->comm, &info));
    CHECK(strstr(info.nccl, "ranks share a GPU") != NULL);
    CHECK_STATUS(tpcomm_call(rank->comm, &call, rank->stream), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("ranks share a GPU, and NCCL takes one rank a GPU");
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_BF16, 1, 1000, "beside a refused call");
}

static void asked_while_sharing(void *arg) {
    tpcomm_config_t config = gpu_config();
    tpcomm_t *comms[2];
    int32_t devices[2] = {0, 0};
    (void)arg;
    config.path = TPCOMM_PATH_NCCL;
    CHECK_STATUS(tpcomm_init_local(2, devices, &config, comms), TPCOMM_ERR_CONFIG);
    CHECK_ERROR_HAS("ranks share a GPU");
}

/* ------------------------------------------------------------------ two GPUs */

static void reductions(gpu_rank_t *rank) {
    static const size_t counts[] = {1, 17, 4096, 300001};
    unsigned char *want = malloc(ROOM), *got = malloc(ROOM);
    CHECK(want && got);
    uint64_t seed = 0;
    for (tpcomm_dtype_t dtype = TPCOMM_F32; dtype <= TPCOMM_F64; dtype++)
        for (tpcomm_op_t op = TPCOMM_SUM; op <= TPCOMM_PROD; op++) {
            if (!tpc_reduction_defined(dtype, op)) continue;
            size_t count = counts[seed % 4], bytes = count * tpcomm_dtype_size(dtype);
            tpcomm_call_t call = by_nccl(rank, TPCOMM_ALL_REDUCE, dtype, op, count);
            if (seed % 3 == 0) call.out = rank->in;
            pattern_fill(PATTERN_EXACT, dtype, seed, rank->rank, count, got);
            gpu_send(rank, rank->in, got, bytes);
            CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
            gpu_fetch(rank, got, call.out, bytes);
            pattern_result(PATTERN_EXACT, dtype, op, seed, rank->size, count, want);
            if (memcmp(got, want, bytes) != 0)
                FAIL("%s %s of %zu by nccl differs", tpcomm_dtype_name(dtype), tpcomm_op_name(op), count);
            seed++;
        }
    free(want);
    free(got);
}

static void movement(gpu_rank_t *rank) {
    size_t count = 10007, bytes = count * 2, size = (size_t)rank->size;
    unsigned char *host = malloc(ROOM), *want = malloc(ROOM);
    CHECK(host && want);
    for (int32_t r = 0; r < rank->size; r++)
        pattern_fill(PATTERN_BITS, TPCOMM_BF16, 3, r, count, want + (size_t)r * bytes);
    gpu_send(rank, rank->in, want + (size_t)rank->rank * bytes, bytes);
    tpcomm_call_t call = by_nccl(rank, TPCOMM_ALL_GATHER, TPCOMM_BF16, 0, count);
    CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
    gpu_fetch(rank, host, rank->out, bytes * size);
    CHECK(memcmp(host, want, bytes * size) == 0);
    call.coll = TPCOMM_BROADCAST;
    call.root = rank->size - 1;
    CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
    gpu_fetch(rank, host, rank->out, bytes);
    CHECK(memcmp(host, want + (size_t)call.root * bytes, bytes) == 0);

    pattern_fill(PATTERN_EXACT, TPCOMM_F32, 4, rank->rank, count * size, host);
    gpu_send(rank, rank->in, host, count * size * 4);
    call = by_nccl(rank, TPCOMM_REDUCE_SCATTER, TPCOMM_F32, TPCOMM_SUM, count);
    CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
    gpu_fetch(rank, host, rank->out, count * 4);
    pattern_result(PATTERN_EXACT, TPCOMM_F32, TPCOMM_SUM, 4, rank->size, count * size, want);
    CHECK(memcmp(host, want + (size_t)rank->rank * count * 4, count * 4) == 0);
    call = (tpcomm_call_t){.struct_size = sizeof call, .coll = TPCOMM_BARRIER, .path = TPCOMM_PATH_NCCL};
    for (int i = 0; i < 10; i++) CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    free(host);
    free(want);
}

/* in = in summed over the ranks, STEPS times, by turns: 1 becomes size to the power of STEPS. Any two calls out of
 * order give something else. */
enum { STEPS = 12, COUNT = 40000 };

static void enqueue(gpu_rank_t *rank, cudaStream_t first, cudaStream_t second) {
    for (int i = 0; i < STEPS; i++) {
        tpcomm_call_t call = by_nccl(rank, TPCOMM_ALL_REDUCE, TPCOMM_U32, TPCOMM_SUM, COUNT);
        call.out = rank->in;
        if (i % 2 == 0) call.path = TPCOMM_PATH_ONESHOT;
        CHECK_OK(tpcomm_call(rank->comm, &call, i % 3 == 0 ? second : first));
    }
}

static void ones(gpu_rank_t *rank) {
    uint32_t *host = malloc(COUNT * sizeof *host);
    CHECK(host != NULL);
    for (size_t i = 0; i < COUNT; i++) host[i] = 1;
    gpu_send(rank, rank->in, host, COUNT * sizeof *host);
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    free(host);
}

static void check_power(gpu_rank_t *rank, const char *what) {
    uint32_t want = 1, *host = malloc(COUNT * sizeof *host);
    CHECK(host != NULL);
    for (int i = 0; i < STEPS; i++) want *= (uint32_t)rank->size;
    gpu_fetch(rank, host, rank->in, COUNT * sizeof *host);
    for (size_t i = 0; i < COUNT; i++)
        if (host[i] != want) FAIL("%s: element %zu is %u, want %u", what, i, host[i], want);
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    free(host);
}

static void mixed(gpu_rank_t *rank) {
    cudaStream_t other;
    gpu_stream_new(&other);
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    for (int streams = 1; streams <= 2; streams++) {
        ones(rank);
        enqueue(rank, rank->stream, streams == 1 ? rank->stream : other);
        CUDA_OK(cudaStreamSynchronize(other));
        check_power(rank, streams == 1 ? "one stream" : "two streams");
    }

    /* The same in a graph; the second stream joins the capture and is joined again. */
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t fork, join;
    CUDA_OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CUDA_OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    CUDA_OK(cudaEventRecord(fork, rank->stream));
    CUDA_OK(cudaStreamWaitEvent(other, fork, 0));
    enqueue(rank, rank->stream, other);
    CUDA_OK(cudaEventRecord(join, other));
    CUDA_OK(cudaStreamWaitEvent(rank->stream, join, 0));
    CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    for (int replay = 0; replay < 20; replay++) {
        ones(rank);
        CUDA_OK(cudaGraphLaunch(exec, rank->stream));
        check_power(rank, "a graph");
        if (replay % 5 != 4) continue;
        ones(rank);
        enqueue(rank, rank->stream, rank->stream);
        check_power(rank, "between replays");
    }
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaEventDestroy(fork));
    CUDA_OK(cudaEventDestroy(join));
    CUDA_OK(cudaStreamDestroy(other));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
}

static void everything(gpu_rank_t *rank) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    CHECK_OK(tpcomm_comm_info(rank->comm, &info));
    if (strncmp(info.nccl, "NCCL 2.", 7) != 0) FAIL("the group has no NCCL: %s", info.nccl);
    if (rank->rank == 0) printf("%s; %s\n", info.nccl, info.paths);
    reductions(rank);
    movement(rank);
    mixed(rank);
    tpcomm_call_t call = by_nccl(rank, TPCOMM_ALL_REDUCE, TPCOMM_BF16, TPCOMM_SUM, ROOM);
    tpcomm_decision_t decision = {.struct_size = sizeof decision};
    call.path = TPCOMM_PATH_AUTO;
    CHECK_OK(tpcomm_explain(rank->comm, &call, &decision));
    if (rank->rank == 0) printf("%u bytes: %s, %s\n", 2 * ROOM, tpcomm_path_name(decision.path), decision.reason);
}

/* Rank 1 does not come: its deadline, or its abort, ends the others' call on the GPU, too. */
static void does_not_come(gpu_rank_t *rank) {
    bool aborts = *(const bool *)rank->arg;
    tpcomm_call_t call = by_nccl(rank, TPCOMM_ALL_REDUCE, TPCOMM_F32, TPCOMM_SUM, 1000);
    CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    CHECK_OK(tpcomm_set_op_timeout(rank->comm, 1000));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    uint64_t start = tpc_clock_ns();
    if (rank->rank != 1) CHECK_OK(tpcomm_call(rank->comm, &call, rank->stream));
    if (rank->rank == 1 && aborts) {
        usleep(300000);
        CHECK_OK(tpcomm_abort(rank->comm, "not coming"));
    }
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    while (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) usleep(1000);
    CHECK(tpc_clock_ns() - start < 20000000000u);
    CHECK_STATUS(tpcomm_call(rank->comm, &call, rank->stream), aborts ? TPCOMM_ERR_ABORTED : TPCOMM_ERR_TIMEOUT);
    CHECK_ERROR_HAS(aborts ? "not coming" : "rank 1");
}

/* (W14) What one rank writes into the other's memory never comes: our kernels are off on both, NCCL carries all. */
static void without_a_pair(gpu_rank_t *rank) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    CHECK_OK(tpcomm_comm_info(rank->comm, &info));
    if (strstr(info.paths, "pair 0 -> 1") == NULL) FAIL("the paths are %s", info.paths);
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_I32, 1, 4097, "with a broken pair");
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_I64, 2, 100000, "with a broken pair");
}

int main(void) {
    tpcomm_config_t config = gpu_config();
    tpc_nccl_library_t library;
    gpu_need();
    if (tpc_nccl_load("", &library) != TPCOMM_OK) SKIP("%s", tpcomm_last_error());
    gpu_process(alone, NULL);
    gpu_run(RANKS_THREADS, 2, false, &config, 1 << 20, sharing, NULL);
    gpu_process(asked_while_sharing, NULL);
    if (gpu_count() < 2) SKIP("NCCL between ranks needs two GPUs; the rest has passed on one");
    config.share_device = TPCOMM_DEFAULT;
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        gpu_run(kind, 2, true, &config, ROOM, everything, NULL);
        for (int aborts = 0; aborts < 2; aborts++) {
            bool arg = aborts != 0;
            gpu_run(kind, 2, true, &config, 1 << 20, does_not_come, &arg);
        }
        ranks_set_hooks("set@break_pair:1");
        gpu_run(kind, 2, true, &config, 2 << 20, without_a_pair, NULL);
        ranks_set_hooks("");
    }
    return 0;
}
